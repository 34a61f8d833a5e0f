#pragma once

#include <cstdint>
#include <vector>

#include "sim/judge/what_if.h"

namespace lockstep {

// What a busy machine did to the steps of a run: ranks that were ready to run and had no core.
struct CoreWaits {
  std::vector<double> mean_ms;  // by rank: of its main thread, per step
  // In which some rank waited so long that it could pass for late, or hide who is.
  int64_t busy_steps = 0;
};
CoreWaits core_waits_of(const std::vector<StepModel>& steps);

// The steps as they would have been with a core at all times: works and delays without what was
// waited for one, but never less than the least of the same rank's in any step, or what is usual of
// such leasts, since a rank that sleeps until a set time, or waits for others meanwhile, loses
// nothing by such a wait.
std::vector<StepModel> with_cores_at_all_times(std::vector<StepModel> steps);

}  // namespace lockstep
