#include "golden/own_weights.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "golden/statistics.h"
#include "scenarios/base/check.h"
#include "scenarios/workloads/rank_devices.h"

namespace lockstep {

OwnWeights::OwnWeights(const Scenario& scenario)
    : setup(set_up(scenario, scenario.dtype, 0, golden_devices(scenario))),
      layout(state_layout(setup.training, scenario.optimizer.kind)) {}

void OwnWeights::set(const std::byte* state) {
  const c10::NoGradGuard no_grad;
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != StateKind::parameter) continue;
    const auto i = static_cast<size_t>(entry.parameter);
    at::Tensor(setup.training.parameters[i].tensor).copy_(values_in(entry, state));
  }
}

at::Tensor OwnWeights::values_in(const StateEntry& entry, const std::byte* state) const {
  const at::Tensor& like = setup.training.parameters[static_cast<size_t>(entry.parameter)].tensor;
  at::Tensor values = at::empty(like.sizes(), at::dtype(like.scalar_type()));
  std::memcpy(values.data_ptr(), state + entry.offset, static_cast<size_t>(entry.bytes));
  return values;
}

at::Tensor whole(const at::Tensor& gradient) {
  return on_host(gradient.is_sparse() ? gradient.to_dense() : gradient).contiguous();
}

void flip_highest_mantissa_bit_of_largest(at::Tensor gradient) {
  const int64_t at = gradient.abs().argmax().item<int64_t>();
  if (gradient.scalar_type() == at::kDouble)
    *reinterpret_cast<uint64_t*>(gradient.data_ptr<double>() + at) ^= uint64_t{1} << 51;
  else
    *reinterpret_cast<uint32_t*>(gradient.data_ptr<float>() + at) ^= uint32_t{1} << 22;
}

double threshold_of(Statistic statistic) {
  return statistic == Statistic::rounding ? kRoundingThreshold : kCommunicationThreshold;
}

GoldenItem statistic_item(const Scenario& scenario) {
  GoldenItem item = golden_item(scenario, GoldenKind::replay, false);
  item.bytes = 2 * item.layout.bytes;
  return item;
}

std::unique_ptr<StatisticLane> make_statistic_lane(Statistic statistic, const Scenario& scenario,
                                                   const ReplayRule& rule) {
  if (statistic == Statistic::rounding) return make_rounding_lane(scenario, rule);
  return make_communication_lane(scenario, rule);
}

}  // namespace lockstep
