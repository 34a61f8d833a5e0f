#pragma once

#include <optional>
#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// Of ranks whose optimizers have different parameters in a step (from 0) although all hold the same
// model in DistributedDataParallel: the first parameter that not all update, if the model differs
// by the next step. Whoever shares the update out and sends the results around is not accused.
std::optional<ProgramFinding> judge_lists(const std::vector<ProgramRank>& ranks, size_t step);

}  // namespace lockstep
