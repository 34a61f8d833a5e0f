#pragma once

#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// Fills in the losses that the scenario asks for, of steps of which every rank recorded its own,
// and decides check "losses": is what the scenario reports the loss of the whole batch?
void decide_losses(const RunPlan& plan, const std::vector<RankView>& ranks, RunResult* result);

}  // namespace lockstep
