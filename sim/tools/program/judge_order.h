#pragma once

#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// What is wrong with the order of samples, alike on several ranks and on one device: a position
// that was lost, an epoch that was never set, replicas that are no ranks, samples that come twice.
ProgramFinding judge_order(const std::vector<ProgramRank>& ranks);

}  // namespace lockstep
