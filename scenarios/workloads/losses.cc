#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mul.h>

#include "scenarios/base/check.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

// In float32 where the output is in half precision, as under automatic mixed precision.
at::Tensor as_loss_input(const at::Tensor& values) {
  const bool half = values.scalar_type() == at::kBFloat16 || values.scalar_type() == at::kHalf;
  return half ? values.to(at::kFloat) : values;
}

at::Tensor reduced(const std::string& kind, const at::Tensor& given, const at::Tensor& given_target,
                   at::Reduction::Reduction reduction) {
  const at::Tensor output = as_loss_input(given), target = as_loss_input(given_target);
  if (kind == "mse") return at::mse_loss(output, target, reduction);
  LOCKSTEP_CHECK(kind == "cross_entropy", "no loss " + kind);
  // [samples, length, classes]: every token is an example.
  if (output.dim() == 2) return at::cross_entropy_loss(output, target, {}, reduction);
  return at::cross_entropy_loss(output.flatten(0, -2), target.flatten(), {}, reduction);
}

}  // namespace

at::Tensor loss_of(const Part& loss, const at::Tensor& output, const at::Tensor& target,
                   int64_t ranks, double share) {
  const std::string& reduction = loss.options.text("reduction");
  LOCKSTEP_CHECK(reduction == "mean" || reduction == "sum", "no reduction " + reduction);
  at::Tensor value = reduced(loss.kind, output, target.to(output.device()),
                             reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum);
  double factor = loss.options.number("scale") * share;
  if (loss.options.flag("times_world_size")) factor *= static_cast<double>(ranks);
  return factor == 1 ? value : value.mul(factor);
}

double loss_share(const Scenario& scenario, int64_t shard_samples, int64_t batch_samples) {
  if (scenario.loss.options.text("reduction") == "sum") return 1;
  double share = 1 / static_cast<double>(scenario.accumulate_steps);
  // A loss over all outputs counts every sample alike by itself.
  if (scenario.averaging == "sample_weighted" && scenario.reducer.kind != "data_parallel")
    share *= static_cast<double>(shard_samples * scenario.world_size) /
             static_cast<double>(batch_samples);
  return share;
}

}  // namespace lockstep
