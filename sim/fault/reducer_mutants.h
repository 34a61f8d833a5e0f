#pragma once

#include <vector>

#include "reducer/reducer.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Defects in what a rank's reducer is told. ignore_parameter: this rank leaves one out. The others
// put a comm hook in where the scenario has none, so that lane replay still expects the reducer's
// own arithmetic: hook_path (divides, where the reducer multiplies by the reciprocal), cast_early
// (bfloat16), skip_hook (nothing is summed), sum_undivided, divide_twice. Kinds are described in
// scenarios/schema.json.
void apply_reducer_mutants(const std::vector<MutantSpec>& mutants, int64_t rank,
                           ReducerOptions* options);

}  // namespace lockstep
