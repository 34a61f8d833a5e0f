#pragma once

#include <vector>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/recording.h"

namespace lockstep {

// Of ranks that made different numbers of steps: one that left out an update, or parted from the
// others in a step that all of them made; else nothing can be compared.
ProgramFinding judge_other_counts(const std::vector<ProgramRank>& ranks);

}  // namespace lockstep
