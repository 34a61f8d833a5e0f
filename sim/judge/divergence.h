#pragma once

#include <optional>
#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// The earliest difference over all failed lanes, in the order of steps, then gradient, buffer,
// parameter, optimizer_state; its values from the lane that says most (replay, exact, float64,
// replica), with its cause. Nothing where no lane failed.
std::optional<Divergence> first_divergence(const RunOutcome& outcome,
                                           const std::vector<RankView>& ranks,
                                           const std::vector<LaneResult>& lanes);

}  // namespace lockstep
