#pragma once

#include <string>
#include <vector>

#include "sim/tools/program/drill.h"

namespace lockstep {

// Of a pair of runs in whose step (from 1) every operator was recorded, in `folder` and
// `one_folder`.
DrillFinding drill_runs(const std::vector<ProgramRank>& ranks, const std::string& folder,
                        const ProgramRank& one, const std::string& one_folder, int64_t step);

}  // namespace lockstep
