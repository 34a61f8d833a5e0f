#pragma once

#include <optional>
#include <vector>

#include "sim/tools/program/recording.h"

namespace lockstep {

// The gradients of a step (from 0) are those of one device and this many times the parameters, all
// of them or some: what a penalty on their squares adds. Nothing: they are not.
std::optional<double> penalty_apart(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                                    size_t step);

}  // namespace lockstep
