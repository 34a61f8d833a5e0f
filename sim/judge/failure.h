#pragma once

#include <optional>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// Who failed by its own cause, and who because of it. A rank that died or threw comes before one
// that hung, that before ranks which waited for another or lost their peer. Nothing where every
// process ended well or the run was interrupted.
std::optional<Failure> find_failure(const RunOutcome& outcome, const std::vector<RankView>& ranks);

// "all_reduce 12 (bucket 1, 0.4 MB)" of an arrival.
std::string collective_text(const Event& arrival);

}  // namespace lockstep
