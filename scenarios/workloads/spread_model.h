#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "scenarios/workloads/workload.h"

namespace lockstep {

// An mlp whose layers lie on several devices (scenarios/devices.h), with the weights of `model`,
// which was built on the cpu. Activations move from device to device; the output stays on the last.
// Aborts for a model of another kind: the plan refuses those.
std::unique_ptr<Model> spread_over(const std::vector<c10::Device>& devices,
                                   const Scenario& scenario, const Model& model);

}  // namespace lockstep
