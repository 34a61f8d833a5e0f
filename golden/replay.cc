#include "golden/replay.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "scenarios/base/check.h"
#include "scenarios/split.h"
#include "scenarios/workloads/loss_scaling.h"

namespace lockstep {
namespace {

// The order in which the gradients of one backward become ready.
class ReadyOrder {
 public:
  ReadyOrder(const NamedTensors& parameters, std::vector<size_t>* order) : parameters_(parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].tensor.requires_grad()) continue;
      const unsigned key = parameters[i].tensor.register_hook(
          [i, order](const at::Tensor&) { order->push_back(i); });
      hooks_.emplace_back(i, key);
    }
  }
  ~ReadyOrder() {
    for (const auto& [i, key] : hooks_) parameters_[i].tensor.remove_hook(key);
  }
  ReadyOrder(const ReadyOrder&) = delete;
  ReadyOrder& operator=(const ReadyOrder&) = delete;

 private:
  const NamedTensors& parameters_;
  std::vector<std::pair<size_t, unsigned>> hooks_;
};

const std::string kNone = "none";

bool has_samples(const Batch& shard) { return shard.input.size(0) > 0; }

}  // namespace

Replay::Replay(const ReplayRule& rule, const Scenario& scenario, Training& training)
    : rule_(rule),
      scenario_(scenario),
      world_size_(scenario.world_size),
      training_(training),
      buckets_(rule, training.parameters, scenario.world_size) {
  if (!training.buffers.empty()) rank_buffers_.resize(static_cast<size_t>(world_size_));
  for (int64_t rank = 0; rank < world_size_; ++rank) keep_buffers(rank);
}

void Replay::average(int64_t step, const std::vector<Batch>& shards,
                     const std::function<void(int64_t)>& visit) {
  LOCKSTEP_CHECK(static_cast<int64_t>(shards.size()) == world_size_, "one shard per rank");
  start_step(step);
  if (rule_.gathered) return sum_gathered(step, shards);
  used_.assign(training_.parameters.size(), false);
  int64_t batch_samples = 0, active = 0, first_active = -1;
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    const Batch& shard = shards[static_cast<size_t>(rank)];
    batch_samples += shard.input.size(0);
    if (!has_samples(shard)) continue;
    ++active;
    if (first_active < 0) first_active = rank;
    buffer_source_ = rule_.joins ? rank : 0;
  }
  buckets_.divide_by(rule_.divide_by_active ? active : world_size_);
  start_buffers_ = rank_buffers_;
  start_gradients_.clear();
  std::vector<bool> later;  // a gradient that has been synchronized before
  for (const NamedTensor& parameter : training_.parameters) {
    start_gradients_.push_back(parameter.tensor.grad());
    later.push_back(age_ > 1 && parameter.tensor.grad().defined());
  }
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    load_buffers(rank);
    if (rank == first_active) note_buffers(&training_);
    clear();
    const Batch& shard = shards[static_cast<size_t>(rank)];
    if (has_samples(shard)) backward(step, rank, shard, batch_samples);
    keep_buffers(rank);
    if (visit) visit(rank);
    for (size_t i = 0; i < used_.size(); ++i)
      used_[i] = used_[i] || training_.parameters[i].tensor.grad().defined();
    buckets_.take(rank, later);
  }
  buckets_.sum();
  put();
  if (rule_.joins && step % Split(scenario_).steps_per_epoch() == 0)
    for (auto& buffers : rank_buffers_)
      buffers = rank_buffers_[static_cast<size_t>(buffer_source_)];
  load_kept_buffers();
}

// Rank 0's, as its last forward left them.
void Replay::load_kept_buffers() {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < training_.buffers.size(); ++i)
    at::Tensor(training_.buffers[i].tensor).copy_(rank_buffers_[0][i]);
}

// Which step it is since the start or the last restart, and the layout of its buckets. The same
// step may come again.
void Replay::start_step(int64_t step) {
  int64_t last_restart = 0;
  for (int64_t after : rule_.restart_after_steps)
    if (after < step) last_restart = std::max(last_restart, after);
  age_ = step - last_restart;
  if (age_ == 1 && last_restart > 0) {
    rebuilt_ = false;
    ready_order_.clear();
    buckets_.lay_out_first();
    for (auto& buffers : rank_buffers_) buffers = rank_buffers_.front();
  }
  const bool rebuilds = rule_.layout == "ddp" && rule_.rebuild;
  if (rebuilds && !rebuilt_ && age_ > rule_.rebuild_after_step) {
    buckets_.lay_out_again(ready_order_);
    rebuilt_ = true;
  }
}

// Those that rank `rank`'s first forward of a step finds.
void Replay::load_buffers(int64_t rank) {
  if (rank_buffers_.empty()) return;
  const c10::NoGradGuard no_grad;
  const auto& found =
      start_buffers_[static_cast<size_t>(rule_.broadcast_buffers ? buffer_source_ : rank)];
  for (size_t i = 0; i < found.size(); ++i) at::Tensor(training_.buffers[i].tensor).copy_(found[i]);
}

void Replay::keep_buffers(int64_t rank) {
  if (rank_buffers_.empty()) return;
  auto& kept = rank_buffers_[static_cast<size_t>(rank)];
  kept.clear();
  for (const NamedTensor& buffer : training_.buffers)
    kept.push_back(buffer.tensor.detach().clone());
}

void Replay::clear() {
  // Each rank's gradients were undefined before its first step; later they are the averaged ones
  // of the step before, whichever way they are cleared.
  const std::string& clearing = age_ == 1 ? kNone : scenario_.zero_grad;
  for (size_t i = 0; i < start_gradients_.size(); ++i)
    training_.parameters[i].tensor.mutable_grad() = start_gradients_[i];
  clear_gradients(training_.parameters, clearing);
}

void Replay::backward(int64_t step, int64_t rank, const Batch& shard, int64_t batch_samples) {
  const double share = loss_share(scenario_, shard.input.size(0), batch_samples) *
                       loss_factor(scenario_, training_, step, rank);
  const std::vector<Batch> parts = micro_batches(shard, scenario_.accumulate_steps);
  for (size_t i = 0; i < parts.size(); ++i) {
    // Order matters of the synchronized one only.
    const bool watch = rank == 0 && ready_order_.empty() && i + 1 == parts.size();
    std::optional<ReadyOrder> order;
    if (watch) order.emplace(training_.parameters, &ready_order_);
    const at::Tensor output = training_.model->forward(parts[i].input);
    loss_of(scenario_.loss, output, parts[i].target, world_size_, share).backward();
  }
}

void Replay::put() {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) continue;
    at::Tensor& gradient = training_.parameters[i].tensor.mutable_grad();
    if (gradient.defined())
      gradient.copy_(buckets_.result(i));
    else
      gradient = buckets_.result(i).clone();  // the last rank had none
  }
}

}  // namespace lockstep
