#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// What records say of a rank, in the words of reports.

// "all_reduce 12 (bucket 1, 0.4 MB)".
std::string to_words(const Explanation::Collective& collective);
Explanation::Collective collective_of(const Event& arrival);
std::string collective_text(const Event& arrival);

// "arrival of all_reduce 12 (bucket 1, 0.4 MB)"; empty: before the first record.
std::string event_text(const RankView& view);
// "in backward of step 3", "in rendezvous", "before its first record".
std::string where(const RankView* view);
// The layer of a parameter, "fc2" of "fc2.weight"; empty where the model's manifest is not known.
std::string layer_of(const Scenario& scenario, int64_t parameter);

// Null: a thread, or one that never started.
const ProcessEnd* end_of(const RunOutcome& outcome, int64_t rank);
// "stopped (state T)", "waiting in futex"; empty: not known.
std::string to_words(const ProcessState& state);
std::string signal_text(int signal);                 // "SIGKILL (9)"
std::string ranks_text(std::vector<int64_t> ranks);  // "rank 2", "ranks 0, 1 and 3"
std::string duration_text(int64_t ms);               // "120 ms", "31.2 s"

}  // namespace lockstep
