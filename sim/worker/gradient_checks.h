#pragma once

#include <string>

#include "scenarios/scenario.h"
#include "scenarios/workloads/workload.h"
#include "sim/worker/probe.h"

namespace lockstep {

// Checks of the gradients that a reducer leaves behind: each one line that names the parameter, or
// empty where all is well. Cheap; no number is read.

// Every trained parameter has a gradient, unless the reducer looks for unused ones or takes the
// graph as static.
std::string absent_gradient(const Scenario& scenario, const Training& training);

// No two parameters or gradients share a byte, and no tensor's elements do: an update of one would
// change the other. Views into one storage that share nothing, as those of a bucket, are right.
// With gradient_as_bucket_view the gradients of a bucket lie in one storage.
std::string wrong_aliasing(const Scenario& scenario, const Training& training,
                           const RecordingProbe& probe);

}  // namespace lockstep
