#pragma once

#include <optional>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// Who failed by its own cause, and who because of it (failure_candidates.h), explained
// (explanation.h). Nothing where every process ended well or the run was interrupted.
std::optional<Failure> find_failure(const RunOutcome& outcome, const std::vector<RankView>& ranks);

}  // namespace lockstep
