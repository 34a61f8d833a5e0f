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
  // The median step after the first, in ms, and half of its 95 % bootstrap interval as a part of
  // it; 0: no step but the first.
  double step_ms = 0, step_error = 0;
};
KeptRun kept_run_of(const RunOutcome& outcome, const std::string& folder);

// Each run in virtual time beside what it took, on a machine that is fitted to the others, or to
// itself where it is alone. Runs that cannot be simulated, or have one step, are left out.
std::vector<ComparedRun> compared_runs(const std::vector<KeptRun>& runs, int64_t cores);

}  // namespace lockstep
