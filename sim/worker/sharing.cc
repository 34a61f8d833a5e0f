#include "sim/worker/sharing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "reducer/comm/memory_order.h"
#include "reducer/shard_sync.h"
#include "scenarios/workloads/loss_scaling.h"

namespace lockstep {
namespace {

std::vector<int64_t> trained_numels(const NamedTensors& parameters) {
  std::vector<int64_t> numels;
  for (const NamedTensor& one : parameters)
    numels.push_back(one.tensor.requires_grad() ? one.tensor.numel() : 0);
  return numels;
}

std::vector<at::Tensor> weights_of(const NamedTensors& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& one : parameters) tensors.push_back(one.tensor);
  return tensors;
}

// Undefined where a parameter has none.
std::vector<at::Tensor> gradients_of(const NamedTensors& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& one : parameters) tensors.push_back(one.tensor.grad());
  return tensors;
}

bool any_gradient(const NamedTensors& parameters) {
  for (const NamedTensor& one : parameters)
    if (one.tensor.grad().defined()) return true;
  return false;
}

// Pieces are runs of memory.
void need_no_gaps(const NamedTensors& parameters) {
  for (const NamedTensor& one : parameters)
    if (!fills_memory(one.tensor))
      throw std::runtime_error(fmt::format(
          "parameter {} has strides [{}], which leave gaps in memory: an optimizer that "
          "is shared out cannot cut it into pieces",
          one.name, fmt::join(one.tensor.strides(), ", ")));
}

// How pieces are cut, and how updated ones travel.
struct Way {
  std::vector<OptimizerShard> pieces;
  PiecewiseOptimizer::Spread spread;
  std::function<void()> gather_gradients;
};

Way zero(const Scenario& scenario, const NamedTensors& parameters, Communicator& group,
         std::chrono::milliseconds timeout) {
  const std::vector<OptimizerShard> pieces =
      zero_shards(trained_numels(parameters), group.world_size());
  const bool together = scenario.optimizer_sharding.options.text("broadcast") == "per_rank";
  const auto spread = [=, &group, weights = weights_of(parameters)] {
    broadcast_shards(pieces, weights, together, group, deadline_after(timeout));
  };
  return {pieces, spread, nullptr};
}

Way sharded(const ReducerOptions& options, const NamedTensors& parameters, Communicator& group) {
  const auto buckets = bucket_shards_of(options, parameters, group.world_size());
  const auto timeout = options.collective_timeout;
  Way way;
  for (const std::vector<OptimizerShard>& bucket : buckets)
    way.pieces.insert(way.pieces.end(), bucket.begin(), bucket.end());
  way.spread = [=, &group, weights = weights_of(parameters)] {
    all_gather_shards(buckets, weights, group, deadline_after(timeout));
  };
  way.gather_gradients = [=, &group] {
    if (any_gradient(parameters))
      all_gather_shards(buckets, gradients_of(parameters), group, deadline_after(timeout));
  };
  return way;
}

}  // namespace

void Sharing::consolidate() {
  if (optimizer != nullptr) optimizer->consolidate();
  if (gather_gradients) gather_gradients();
}

Sharing partition_optimizer(const Scenario& scenario, const ReducerOptions& options,
                            Training* training, Communicator& group) {
  if (!shares_optimizer(scenario)) return {};
  need_no_gaps(training->parameters);
  Way way = options.kind == "sharded"
                ? sharded(options, training->parameters, group)
                : zero(scenario, training->parameters, group, options.collective_timeout);
  auto optimizer = std::make_unique<PiecewiseOptimizer>(scenario.optimizer, training->parameters,
                                                        std::move(way.pieces), way.spread, group,
                                                        options.collective_timeout);
  const Sharing sharing{optimizer.get(), way.gather_gradients};
  training->optimizer = std::move(optimizer);
  if (training->loss_scale)
    training->optimizer =
        with_loss_scale(std::move(training->optimizer), training->loss_scale, training->parameters);
  return sharing;
}

}  // namespace lockstep
