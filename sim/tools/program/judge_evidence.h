#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// Of a gradient (the i-th) that is not that of one device, where a number that is written in the
// script, of ranks or of a rank's samples, explains it: right on the ranks, and not on one device.
std::optional<ProgramFinding> judge_written_numbers(const std::vector<ProgramRank>& ranks,
                                                    const ProgramRank& one, size_t step, size_t i);

// Of a gradient (the i-th) that is wrong: a cause that all gradients of the step prove together,
// and numbers that belong to the cause.
void take_evidence(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step,
                   size_t i, ProgramFinding* found);

}  // namespace lockstep
