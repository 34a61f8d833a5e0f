#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep {

// A parameter, buffer or piece of optimizer state with its name in registration order. Copying it
// copies the handle, not the numbers.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool sparse_gradient = false;  // of a parameter: its gradient is a sparse COO tensor
  int64_t device = 0;            // which of its rank's devices, from 0 (scenarios/scenario.h)
};
using NamedTensors = std::vector<NamedTensor>;

inline std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& one : named) tensors.push_back(one.tensor);
  return tensors;
}

}  // namespace lockstep
