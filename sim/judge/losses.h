#pragma once

#include <optional>
#include <vector>

#include "scenarios/split.h"
#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// Of a step in which every rank recorded its own: weighted by samples; a summed loss adds up
// instead. Nothing where one did not.
std::optional<LossRow> loss_row(const RunPlan& plan, const std::vector<RankView>& ranks,
                                int64_t step, Split* split);

// Fills in the losses that the scenario asks for, of steps of which every rank recorded its own,
// and decides check "losses": is what the scenario reports the loss of the whole batch?
void decide_losses(const RunPlan& plan, const std::vector<RankView>& ranks, RunResult* result);

}  // namespace lockstep
