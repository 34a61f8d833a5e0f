#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace lockstep {

// All tensors in `value`, as DDP looks for a forward's outputs: in lists, tuples and the values of
// dicts, however deep; in nothing else.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);

}  // namespace lockstep
