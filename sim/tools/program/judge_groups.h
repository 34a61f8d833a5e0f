#pragma once

#include <string>
#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// Ranks whose gradients of a parameter are alike, though their samples are not, and are others than
// those of the remaining ranks, have summed among themselves alone: says so of a failure that has
// no better cause, whatever they summed by.
void take_groups(const std::vector<ProgramRank>& ranks, size_t step, const std::string& parameter,
                 ProgramFinding* found);

}  // namespace lockstep
