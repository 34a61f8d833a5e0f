#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/drill_recording.h"
#include "sim/tools/program/recording.h"

namespace lockstep {

// On several ranks parameters are named as DistributedDataParallel holds them, on one device as the
// outermost module that is called does: a script that calls a module around the one that it wraps
// has "task.0.weight" there where ranks have "0.weight".

// One device's names as ranks have them, where all differ by one beginning; nothing where they do
// not differ, or otherwise.
std::optional<ProgramRank> with_names_of(const std::vector<ProgramRank>& ranks,
                                         const ProgramRank& one);
// The same of operators and parameters: `one_step` is the step as one device named it.
void take_names_of(const ProgramStep& rank_step, const ProgramStep& one_step, DrillRank* one);

}  // namespace lockstep
