#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "golden/state.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// A training on the golden device that takes its weights from a run's states, step by step.
class OwnWeights {
 public:
  explicit OwnWeights(const Scenario& scenario);

  void set(const std::byte* state);
  // Of a parameter or its gradient, on the host.
  at::Tensor values_in(const StateEntry& entry, const std::byte* state) const;

  Setup setup;
  StateLayout layout;
};

// Dense and on the host.
at::Tensor whole(const at::Tensor& gradient);
// What a must-fail control does to a gradient, in place.
void flip_highest_mantissa_bit_of_largest(at::Tensor gradient);

}  // namespace lockstep
