#include "scenarios/workloads/clipping.h"

#include <torch/types.h>

#include <torch/nn/utils/clip_grad.h>

#include <limits>
#include <vector>

#include "scenarios/base/check.h"

namespace lockstep {

void clip_gradients(const Part& clipping, const NamedTensors& parameters) {
  if (clipping.kind == "none") return;
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor);
  if (clipping.kind == "value") {
    torch::nn::utils::clip_grad_value_(tensors, clipping.options.number("max_value"));
    return;
  }
  LOCKSTEP_CHECK(clipping.kind == "norm", "no clipping " + clipping.kind);
  const double norm_type =
      clipping.options.text("norm_type") == "inf" ? std::numeric_limits<double>::infinity() : 2.0;
  torch::nn::utils::clip_grad_norm_(tensors, clipping.options.number("max_norm"), norm_type);
}

}  // namespace lockstep
