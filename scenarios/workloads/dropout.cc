#include "scenarios/workloads/dropout.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

namespace lockstep {

DropoutImpl::DropoutImpl(double p) : p_(p) {
  if (!(p >= 0 && p < 1))
    throw std::invalid_argument(fmt::format("dropout of {}: expected at least 0, less than 1", p));
}

at::Tensor DropoutImpl::forward(const at::Tensor& input) {
  if (!is_training() || p_ == 0) return input;
  SampleDraws& own = draws();
  if (input.dim() == 0 || input.size(0) != own.samples())
    throw std::runtime_error(fmt::format("dropout of {} rows in a forward of {} samples",
                                         input.dim() == 0 ? 1 : input.size(0), own.samples()));
  const at::Tensor kept = own.uniform(input.sizes().slice(1)).ge(p_);
  return input * kept.to(input.options()).div(1 - p_);
}

}  // namespace lockstep
