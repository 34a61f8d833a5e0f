#pragma once

#include <cstdint>
#include <vector>

#include "sim/calibrate/accuracy.h"
#include "sim/calibrate/fit.h"
#include "sim/launch/executor.h"

namespace lockstep {

// A kept run, as a fit and a comparison need it.
struct KeptRun {
  RunPlan plan;
  RunSamples samples;
  double step_ms = 0;  // the median step after the first; 0: no step but the first
};
KeptRun kept_run_of(const RunOutcome& outcome, const std::string& folder);

// Each run in virtual time beside what it took, on a machine that is fitted to the others; none
// where it is alone. Runs that cannot be simulated, or have one step, are left out.
std::vector<ComparedRun> compared_runs(const std::vector<KeptRun>& runs, int64_t cores);

}  // namespace lockstep
