#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/other_calls.h"
#include "sim/judge/rank_view.h"
#include "sim/launch/executor.h"

namespace lockstep {

// How long a rank's main thread was ready and had no core after that moment, as its records and
// what the launcher saw of it tell: until its last phase, its error, or the run's failure.
int64_t core_wait_since(const RunOutcome& outcome, int64_t rank, int64_t time_ns);

// The same of all ranks, launcher and zygote added up: by so much, at most, a busy machine may have
// put off what came of that moment.
int64_t core_wait_of_all_since(const RunOutcome& outcome, int64_t time_ns);

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

// How good an explanation of a failed run an end is: the smallest is the primary failure.
//   own_cause   died, exited or threw by itself
//   left_early  ended well, or was about to, with fewer steps, or collectives, than the others
//   waited for rejected    refused what it was given; where most ranks called the same, whoever
//   called
//               something else instead, and those who refused it have lost a peer
//   hung        alive, but kept the others waiting, or was still running past a deadline
//   waited      timed out while it waited for another
//   lost_peer   its connection to another was closed
enum class FailureRole { own_cause, left_early, rejected, hung, waited, lost_peer, none };

struct FailureCandidate {
  FailureRole role = FailureRole::none;
  int64_t rank = -1;
  int64_t order = 0;                         // in which the launcher learnt of it
  const ProcessEnd* end = nullptr;           // null: a thread, known by its evidence alone
  std::optional<OtherCall> other_call = {};  // that others refused
};

// Everyone whose end was not good, the primary one first. Ranks that died are told apart by the
// launcher's order alone. Among those that hang one that was stopped comes first, one that waits
// for a key of the store last, then who came least far, since the others waited for it. Of ranks
// that say who refused them or closed their connection the most accused comes first, not counting
// those who accuse one that had lost a peer before, and closed; of equals who failed first. `then`:
// the views when the launcher learnt that the run had failed (views_at); `ranks`: the whole ones.
// No receipt of a fault and no schedule is looked at.
std::vector<FailureCandidate> failure_candidates(const RunOutcome& outcome,
                                                 const std::vector<RankView>& ranks,
                                                 const std::vector<RankView>& then);

const RankView* view_of(const std::vector<RankView>& ranks, int64_t rank);  // null: none
int64_t last_arrival(const RankView* view);                                 // 0: none

}  // namespace lockstep
