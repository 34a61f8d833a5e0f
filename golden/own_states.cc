#include "golden/own_states.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "scenarios/local_steps.h"
#include "scenarios/workloads/forward.h"
#include "scenarios/workloads/loss_scaling.h"

namespace lockstep {
namespace {

void copy_tensor_values(const NamedTensors& from, const NamedTensors& to) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < from.size(); ++i) at::Tensor(to[i].tensor).copy_(from[i].tensor);
}

std::vector<Training> twins_of(const Scenario& scenario, const Training& first) {
  std::vector<Training> twins;
  for (int64_t rank = 1; rank < scenario.world_size; ++rank) {
    const RandomSection random(scenario.seed);
    const auto dtype = first.parameters.front().tensor.scalar_type();
    twins.push_back(build_training(scenario, dtype == at::kDouble ? "float64" : "float32"));
    copy_tensor_values(first.parameters, twins.back().parameters);
    copy_tensor_values(first.buffers, twins.back().buffers);
    note_buffers(&twins.back());
  }
  return twins;
}

// Each in a flat tensor; of one dtype, as shipped models are.
at::Tensor flat_parameters(const Training& training) {
  std::vector<at::Tensor> flattened;
  for (const NamedTensor& parameter : training.parameters)
    if (parameter.tensor.requires_grad())
      flattened.push_back(parameter.tensor.detach().reshape({-1}));
  return at::cat(flattened);
}

void put_parameters(const at::Tensor& flat, const Training& training) {
  int64_t offset = 0;
  for (const NamedTensor& parameter : training.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    const int64_t numel = parameter.tensor.numel();
    at::Tensor(parameter.tensor)
        .copy_(flat.narrow(0, offset, numel).view(parameter.tensor.sizes()));
    offset += numel;
  }
}

}  // namespace

OwnStates::OwnStates(const Scenario& scenario, const ReplayRule& rule, Setup& setup)
    : scenario_(scenario),
      rule_(rule),
      world_size_(static_cast<size_t>(scenario.world_size)),
      first_(setup.training),
      others_(twins_of(scenario, setup.training)),
      samples_(scenario, setup.data),
      replay_(rule, scenario, setup.training) {}

void OwnStates::step(int64_t step) {
  averages_gradients(scenario_, step) ? shared_gradients(step) : local_gradients(step);
  for (size_t rank = 0; rank < world_size_; ++rank) update(scenario_, step, &training(rank));
  if (averages_parameters(scenario_, step)) average_parameters();
}

void OwnStates::shared_gradients(int64_t step) {
  replay_.average(step, samples_.shards(step));
  const c10::NoGradGuard no_grad;
  for (Training& other : others_) {
    for (size_t i = 0; i < other.parameters.size(); ++i) {
      const at::Tensor& gradient = first_.parameters[i].tensor.grad();
      other.parameters[i].tensor.mutable_grad() =
          gradient.defined() ? gradient.clone() : at::Tensor();
    }
    other.noted_buffers = first_.noted_buffers;
  }
}

// Buffers are rank 0's before each forward, as in every step.
void OwnStates::local_gradients(int64_t step) {
  const std::vector<Batch>& shards = samples_.shards(step);
  int64_t batch_samples = 0;
  for (const Batch& shard : shards) batch_samples += shard.input.size(0);
  for (Training& other : others_) copy_tensor_values(first_.buffers, other.buffers);
  for (size_t rank = 0; rank < world_size_; ++rank) {
    Training& own = training(rank);
    note_buffers(&own);
    clear_gradients(own.parameters, scenario_.zero_grad);
    const double share = loss_share(scenario_, shards[rank].input.size(0), batch_samples) *
                         loss_factor(scenario_, own, step, static_cast<int64_t>(rank));
    for (const Batch& part : micro_batches(shards[rank], scenario_.accumulate_steps))
      loss_of(scenario_.loss, forward_of(own, step, part), part.target, scenario_.world_size, share)
          .backward();
  }
}

void OwnStates::average_parameters() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (size_t rank = 0; rank < world_size_; ++rank)
    flat.push_back(flat_parameters(training(rank)).div_(scenario_.world_size));
  at::Tensor sum = at::empty_like(flat.front());
  add_in_order(rule_.algorithm, flat, &sum);
  for (size_t rank = 0; rank < world_size_; ++rank) put_parameters(sum, training(rank));
}

void OwnStates::copy(const StateLayout& layout, std::byte* out) const {
  copy_state(first_, layout, out);
  for (size_t other = 0; other < others_.size(); ++other)
    copy_state(others_[other], layout, out + static_cast<int64_t>(other + 1) * layout.bytes);
}

}  // namespace lockstep
