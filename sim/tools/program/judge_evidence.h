#pragma once

#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// One device divides its gradient by the number of ranks as well, which it does not have, so that
// those of the ranks, which are as many times larger, are what is due.
bool divides_by_constant(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step,
                         size_t i);

// Of a gradient (the i-th) that is wrong: a cause that all gradients of the step prove together,
// and numbers that belong to the cause.
void take_evidence(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step,
                   size_t i, ProgramFinding* found);

}  // namespace lockstep
