#pragma once

#include <vector>

#include "sim/tools/program/drill.h"
#include "sim/tools/program/judge.h"

namespace lockstep {

// What each rank's own gradients tell, which nobody sees before a drill.

// Of batches that are uneven: are the ranks' weights in one device's gradient the shares of
// samples that they had?
bool is_proven(const DrillFinding& drilled, const std::vector<ProgramRank>& ranks);

// `wrong`, with the cause that the drill found where the facts of the step had none.
ProgramFinding with_cause(const DrillFinding& drilled, const ProgramStep& of_rank_0,
                          ProgramFinding wrong);

}  // namespace lockstep
