#pragma once

#include "scenarios/base/named_tensor.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Limits the gradients in grad(), in their own dtype, by LibTorch's own functions: kind "norm" by
// the norm of all of them together, "value" each element by itself; "none" does nothing.
void clip_gradients(const Part& clipping, const NamedTensors& parameters);

}  // namespace lockstep
