#pragma once

#include "scenarios/workloads/workload.h"

namespace lockstep {

// The two halves of update() (workload.h), for a rank that decides otherwise (sim/fault).

// Takes the loss scale out of the averaged gradients; false if the step must be skipped. True
// without loss scaling.
bool unscale(Training* training);

// usable: learning rate of this step, clipping, optimizer, requantizing. Otherwise the step is
// skipped, and its gradients become 0: nothing after it may use them. Then the loss scale is set
// for the next step.
void finish_step(const Scenario& scenario, int64_t step, bool usable, Training* training);

}  // namespace lockstep
