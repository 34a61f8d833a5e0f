#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "scenarios/workloads/workload.h"

namespace lockstep {

// `model` with all its parameters and buffers on one device of an accelerator, as Module::to()
// would move them; forward() takes inputs of the cpu. Handles of parameters that were taken before
// stay good.
std::unique_ptr<Model> place_on(c10::Device device, std::unique_ptr<Model> model);

}  // namespace lockstep
