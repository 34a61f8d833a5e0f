#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// The first collective of the primary run that this rank entered and that has not ended on it.
const Event* pending_in(const RankView& rank);

// The time-out that this collective had.
int64_t time_out_ms(const Timeouts& timeouts, const Event& arrival);

// A collective that ranks timed out in though all had entered it.
struct JointWait {
  Event arrival{};       // one rank's
  int64_t given_ms = 0;  // its time-out
  int64_t entered_within_ms = 0;
  int64_t last = -1;  // the rank that entered last
  // The last one took less than half of the time-out to come: the rest was not enough for the
  // collective itself, and no rank is to blame.
  bool together() const { return 2 * entered_within_ms < given_ms; }
};

// Of those that timed out, the first collective that they did so in; none where a rank never
// entered it, or where its records do not tell. `then`: the views when the failure was known.
std::optional<JointWait> joint_wait(const RunOutcome& outcome, const std::vector<RankView>& then);

// "the time-out of 400 ms is too short, or the network lost what was sent: all ranks entered
// all_reduce 7 (bucket 1, 528 bytes) within 3 ms".
std::string to_words(const JointWait& wait);

}  // namespace lockstep
