#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "scenarios/workloads/draws.h"

namespace lockstep {

// torch::nn::Dropout, but for where its masks come from: each sample's own generator (draws.h).
// Input: [samples, ...].
class DropoutImpl : public torch::nn::Module, public RandomLayer {
 public:
  // p: in [0, 1), what becomes zero; the rest is divided by 1 - p. Throws std::invalid_argument.
  explicit DropoutImpl(double p);
  at::Tensor forward(const at::Tensor& input);

 private:
  const double p_;
};

TORCH_MODULE(Dropout);

}  // namespace lockstep
