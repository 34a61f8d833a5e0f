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

// Do all ranks leave the same parameters?
bool left_alike(const std::vector<ProgramRank>& ranks, size_t step);
// Why an update that is not that of one device says nothing, to follow "distance 0.1"; or nothing.
std::string undecided_update(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                             size_t step, size_t i, double off);

// Of a gradient (the i-th) that is wrong: a cause that all gradients of the step prove together,
// and numbers that belong to the cause.
void take_evidence(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step,
                   size_t i, ProgramFinding* found);

}  // namespace lockstep
