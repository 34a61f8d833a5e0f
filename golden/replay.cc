#include "golden/replay.h"

#include <ATen/ATen.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "scenarios/split.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/update.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

struct LeftAlone : std::runtime_error {
  using runtime_error::runtime_error;
};

class Meeting {
 public:
  explicit Meeting(int64_t ranks) : rows_(static_cast<size_t>(ranks)) {}

  at::Tensor gather(int64_t rank, const at::Tensor& row) {
    std::unique_lock lock(mutex_);
    rows_[static_cast<size_t>(rank)] = row;
    const int64_t now = meeting_;
    if (++arrived_ == rows_.size()) {
      all_ = at::stack(rows_);
      arrived_ = 0;
      ++meeting_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return meeting_ > now || somebody_left_; });
    if (meeting_ == now) throw LeftAlone("a rank ended before the others");
    return all_;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    somebody_left_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> rows_;
  at::Tensor all_;  // of the last meeting: nobody comes to the next before all have it
  size_t arrived_ = 0;
  int64_t meeting_ = 0;
  bool somebody_left_ = false;
};

class RankOfMeeting : public BatchGroup {
 public:
  RankOfMeeting(Meeting& meeting, int64_t rank) : meeting_(meeting), rank_(rank) {}
  at::Tensor all_gather(const at::Tensor& row) override { return meeting_.gather(rank_, row); }

 private:
  Meeting& meeting_;
  const int64_t rank_;
};

void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr alone;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const LeftAlone&) {
      alone = error;
    }
  }
  if (alone) std::rethrow_exception(alone);
}

}  // namespace

void run_in_lock_step(int64_t ranks, const std::function<void(int64_t, BatchGroup&)>& body) {
  Meeting meeting(ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      RankOfMeeting group(meeting, rank);
      try {
        body(rank, group);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
      meeting.leave();
    });
  for (std::thread& thread : threads) thread.join();
  rethrow_first(errors);
}

namespace {

// The order in which the gradients of one backward become ready.
class ReadyOrder {
 public:
  ReadyOrder(const NamedTensors& parameters, std::vector<size_t>* order) : parameters_(parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].tensor.requires_grad()) continue;
      const unsigned key =
          parameters[i].tensor.register_hook([this, i, order](const at::Tensor& gradient) {
            if (!gradient.defined()) return;
            const std::lock_guard lock(mutex_);
            order->push_back(i);
          });
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
  std::mutex mutex_;  // each device's gradients come on a thread of its own
};

const std::string kNone = "none";

bool has_samples(const Batch& shard) { return shard.input.size(0) > 0; }

void take_gradients(const Training& from, Training& to) {
  for (size_t i = 0; i < to.parameters.size(); ++i)
    to.parameters[i].tensor.mutable_grad() = from.parameters[i].tensor.grad();
}

}  // namespace

Replay::Replay(const ReplayRule& rule, const Scenario& scenario, Training& training)
    : rule_(rule),
      scenario_(scenario),
      world_size_(scenario.world_size),
      training_(training),
      buckets_(rule, training.parameters, scenario.world_size),
      ready_of_rank_(static_cast<size_t>(scenario.world_size)) {
  if (scenario.comm_hook.kind == "powersgd") power_sgd_.emplace(scenario, rule.algorithm);
  if (!training.buffers.empty()) rank_buffers_.resize(static_cast<size_t>(world_size_));
  for (int64_t rank = 0; rank < world_size_; ++rank) keep_buffers(training, rank);
  if (training.model->normalize_over(nullptr)) build_replicas();
}

// They have gradients and buffers of their own, but share the weights' memory.
void Replay::build_replicas() {
  const std::string dtype = to_word(training_.parameters.front().tensor.scalar_type());
  const RandomSection random(scenario_.seed);
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    Training& own = replicas_.emplace_back(build_training(scenario_, dtype));
    for (size_t i = 0; i < own.parameters.size(); ++i)
      own.parameters[i].tensor.set_data(training_.parameters[i].tensor.detach());
  }
}

void Replay::average(int64_t step, const std::vector<Batch>& shards,
                     const std::function<void(int64_t)>& visit) {
  LOCKSTEP_CHECK(static_cast<int64_t>(shards.size()) == world_size_, "one shard per rank");
  start_step(step);
  if (rule_.gathered) return sum_gathered(step, shards);
  const std::vector<Stretch> stretches = stretches_of(step, shards);
  int64_t active = 0;
  first_active_ = -1;
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    if (!has_samples(shards[static_cast<size_t>(rank)])) continue;
    ++active;
    if (first_active_ < 0) first_active_ = rank;
    buffer_source_ = rule_.joins ? rank : 0;
  }
  buckets_.divide_by(rule_.divide_by_active ? active : world_size_);
  for (const Stretch& stretch : stretches) average_stretch(stretch, visit);
}

std::vector<Replay::Stretch> Replay::stretches_of(int64_t step,
                                                  const std::vector<Batch>& shards) const {
  int64_t batch_samples = 0;
  for (const Batch& shard : shards) batch_samples += shard.input.size(0);
  const bool each = scenario_.accumulate_sync == "each";
  std::vector<Stretch> stretches(each ? static_cast<size_t>(scenario_.accumulate_steps) : 1);
  for (size_t index = 0; index < stretches.size(); ++index)
    stretches[index] = {step, index, batch_samples, {}};
  for (const Batch& shard : shards) {
    std::vector<Batch> all;
    if (has_samples(shard)) all = micro_batches(shard, scenario_.accumulate_steps);
    for (size_t index = 0; index < stretches.size(); ++index)
      stretches[index].micro_batches.push_back(each && !all.empty() ? std::vector<Batch>{all[index]}
                                                                    : all);
  }
  return stretches;
}

void Replay::average_stretch(const Stretch& stretch, const std::function<void(int64_t)>& visit) {
  lay_out_when_due(stretch.index);
  used_.assign(training_.parameters.size(), false);
  start_buffers_ = rank_buffers_;
  if (rule_.buffer_hook == "average_before_forward") average_buffers(&start_buffers_);
  start_gradients_.clear();
  const bool outlives = stretch.index > 0 || (age_ > 1 && scenario_.zero_grad != kNone);
  std::vector<bool> later;  // a gradient that has been synchronized before, and not cleared
  for (const NamedTensor& parameter : training_.parameters) {
    start_gradients_.push_back(parameter.tensor.grad());
    later.push_back(outlives && parameter.tensor.grad().defined());
  }
  load_buffers(training_, first_active_);
  if (stretch.index == 0) note_buffers(&training_);
  if (!replicas_.empty())
    run_in_lock_step(world_size_, [&](int64_t rank, BatchGroup& group) {
      Training& own = replicas_[static_cast<size_t>(rank)];
      own.model->normalize_over(&group);
      pass(own, stretch, rank);
    });
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    if (replicas_.empty())
      pass(training_, stretch, rank);
    else
      take_gradients(replicas_[static_cast<size_t>(rank)], training_);
    if (visit) visit(rank);
    note_used(rank);
    buckets_.take(rank, later);
  }
  if (rule_.buffer_hook == "average_after_forward") average_buffers(&rank_buffers_);
  buckets_.sum();
  put();
  if (rule_.joins && stretch.step % Split(scenario_).steps_per_epoch() == 0)
    for (auto& buffers : rank_buffers_)
      buffers = rank_buffers_[static_cast<size_t>(buffer_source_)];
  load_kept_buffers();
}

void Replay::note_used(int64_t rank) {
  for (size_t i = 0; i < used_.size(); ++i) {
    const bool found_only = rule_.keeps_unused && !buckets_.stands_alone(i);
    if (!found_only) used_[i] = used_[i] || training_.parameters[i].tensor.grad().defined();
  }
  for (const size_t i : ready_of_rank_[static_cast<size_t>(rank)]) used_[i] = true;
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
    if (power_sgd_) power_sgd_->forget();
    for (auto& buffers : rank_buffers_) buffers = rank_buffers_.front();
  }
}

// averaged: how often in this step already.
void Replay::lay_out_when_due(size_t averaged) {
  const int64_t each_step = scenario_.accumulate_sync == "each" ? scenario_.accumulate_steps : 1;
  const int64_t before = (age_ - 1) * each_step + static_cast<int64_t>(averaged);
  buckets_.compress_with(power_sgd_ && power_sgd_->compresses(before + 1) ? &*power_sgd_ : nullptr);
  const bool rebuilds = rule_.layout == "ddp" && rule_.rebuild;
  if (!rebuilds || rebuilt_ || before < rule_.rebuild_after_step) return;
  buckets_.lay_out_again(ready_order_);
  if (power_sgd_) power_sgd_->forget();
  rebuilt_ = true;
}

// Those that rank `rank`'s first forward of a step finds.
void Replay::load_buffers(Training& own, int64_t rank) {
  if (rank_buffers_.empty()) return;
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < own.buffers.size(); ++i) {
    const auto& found = start_buffers_[static_cast<size_t>(buffer_source(i, rank))];
    at::Tensor(own.buffers[i].tensor).copy_(found[i]);
  }
}

// Whose buffer rank `rank` starts a step with.
int64_t Replay::buffer_source(size_t buffer, int64_t rank) const {
  const bool own = !rule_.broadcast_buffers || rule_.buffer_hook != kNone ||
                   is_named_in(rule_.ignored, training_.buffers[buffer].name);
  return own ? rank : buffer_source_;
}

// Those of floating point: each / W, then the sum. The others are left alone.
void Replay::average_buffers(std::vector<std::vector<at::Tensor>>* of_ranks) const {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < training_.buffers.size(); ++i) {
    const NamedTensor& buffer = training_.buffers[i];
    if (!buffer.tensor.is_floating_point() || is_named_in(rule_.ignored, buffer.name)) continue;
    std::vector<at::Tensor> divided;
    const bool as_it_lies = buffer.tensor.is_non_overlapping_and_dense();
    for (const auto& buffers : *of_ranks) {
      const at::Tensor own = as_it_lies ? buffers[i] : buffers[i].contiguous();
      divided.push_back(on_host(own.div(world_size_)));
    }
    at::Tensor sum = at::empty_like(divided.front());
    add_in_order(rule_.algorithm, divided, &sum);
    for (auto& buffers : *of_ranks) buffers[i] = sum.clone();
  }
}

void Replay::keep_buffers(const Training& own, int64_t rank) {
  if (rank_buffers_.empty()) return;
  auto& kept = rank_buffers_[static_cast<size_t>(rank)];
  kept.clear();
  for (const NamedTensor& buffer : own.buffers) kept.push_back(buffer.tensor.detach().clone());
}

void Replay::pass(Training& own, const Stretch& stretch, int64_t rank) {
  load_buffers(own, rank);
  backward(own, stretch, rank);
  keep_buffers(own, rank);
}

void Replay::backward(Training& own, const Stretch& stretch, int64_t rank) {
  for (size_t i = 0; i < start_gradients_.size(); ++i) {
    // Gradients add up in place, in memory that ranks one after the other may share. A view of a
    // bucket, or another's, decides no bit.
    const at::Tensor& found = start_gradients_[i];
    const bool copies = found.defined() && (stretch.index > 0 || !replicas_.empty());
    own.parameters[i].tensor.mutable_grad() = copies ? found.clone() : found;
  }
  // Each rank's gradients were undefined before its first step; later they are the averaged ones
  // of the step before, whichever way they are cleared.
  const std::string& clearing = age_ == 1 || rule_.fresh_shards ? kNone : scenario_.zero_grad;
  if (stretch.index == 0) clear_gradients(own.parameters, clearing);
  const auto& micro_batches = stretch.micro_batches[static_cast<size_t>(rank)];
  int64_t samples = 0;
  for (const Batch& batch : micro_batches) samples += batch.input.size(0);
  if (scenario_.accumulate_sync == "each") samples *= scenario_.accumulate_steps;
  const double share = loss_share(scenario_, samples, stretch.batch_samples) *
                       loss_factor(scenario_, training_, stretch.step, rank);
  std::vector<size_t>& ready = ready_of_rank_[static_cast<size_t>(rank)];
  ready.clear();
  for (const Batch& batch : micro_batches) {
    const size_t before = ready.size();
    const ReadyOrder order(own.parameters, &ready);
    const at::Tensor output = forward_of(own, stretch.step, batch);
    loss_of(scenario_.loss, output, batch.target, world_size_, share).backward();
    // Order matters of the synchronized one only.
    if (rank == 0 && ready_order_.empty() && &batch == &micro_batches.back())
      ready_order_.assign(ready.begin() + static_cast<std::ptrdiff_t>(before), ready.end());
  }
}

// What a step finds in grad() is cleared first, and stays where no shard has a gradient.
at::Tensor Replay::left_by_none(at::Tensor found) const {
  if (!found.defined() || age_ == 1 || scenario_.zero_grad == kNone) return {};
  return found.zero_();
}

void Replay::put() {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < used_.size(); ++i) {
    at::Tensor& gradient = training_.parameters[i].tensor.mutable_grad();
    if (!used_[i] && rule_.fresh_shards) gradient = left_by_none(start_gradients_[i]);
    if (!used_[i]) continue;
    if (gradient.defined() && !gradient.is_sparse())
      gradient.copy_(buckets_.result(i));
    else
      gradient = buckets_.result(i).clone().to(  // the last rank had none, or is sparse
          training_.parameters[i].tensor.device());
  }
}

namespace {

// One process whose replicas compute a chunk of the batch each: the first ones take what is left
// over.
std::vector<Batch> chunks_of(const Batch& batch, int64_t replicas) {
  std::vector<Batch> chunks;
  int64_t begin = 0;
  for (int64_t r = 0; r < replicas; ++r) {
    const int64_t left = batch.input.size(0) - begin;
    const int64_t size = (left + replicas - r - 1) / (replicas - r);
    chunks.push_back({batch.input.narrow(0, begin, size), batch.target.narrow(0, begin, size),
                      samples_in(batch, begin, size)});
    begin += size;
  }
  return chunks;
}

Batch joined(const std::vector<Batch>& parts) {
  std::vector<at::Tensor> inputs, targets;
  std::vector<int64_t> samples;
  for (const Batch& part : parts) {
    inputs.push_back(part.input);
    targets.push_back(part.target);
    samples.insert(samples.end(), part.samples.begin(), part.samples.end());
  }
  return {at::cat(inputs), at::cat(targets), samples};
}

}  // namespace

void Replay::sum_gathered(int64_t step, const std::vector<Batch>& shards) {
  note_buffers(&training_);
  clear_gradients(training_.parameters, age_ == 1 ? "none" : scenario_.zero_grad);
  std::vector<at::Tensor> found;
  for (const NamedTensor& parameter : training_.parameters)
    found.push_back(parameter.tensor.grad());
  const Batch batch = joined(shards);
  const double share = loss_share(scenario_, batch.input.size(0), batch.input.size(0)) *
                       loss_factor(scenario_, training_, step, -1);
  std::vector<at::Tensor> sums(training_.parameters.size());
  for (const Batch& part : micro_batches(batch, scenario_.accumulate_steps))
    add_gathered(step, part, share, &sums);
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < sums.size(); ++i) {
    at::Tensor& gradient = training_.parameters[i].tensor.mutable_grad();
    gradient = found[i];
    if (sums[i].defined() && gradient.defined())
      gradient.copy_(sums[i]);
    else if (sums[i].defined())
      gradient = sums[i];
  }
}

// Every replica starts from the first one's buffers, which alone are kept.
void Replay::add_gathered(int64_t step, const Batch& batch, double share,
                          std::vector<at::Tensor>* sums) {
  const std::vector<Batch> chunks = chunks_of(batch, world_size_);
  start_buffers_ = rank_buffers_;
  const at::Tensor gradient = gradient_of_outputs(step, chunks, share);
  used_.assign(sums->size(), false);
  int64_t begin = 0;
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    const Batch& chunk = chunks[static_cast<size_t>(rank)];
    load_buffers(training_, 0);
    clear_gradients(training_.parameters, "none");
    const int64_t rows = chunk.input.size(0);
    forward_of(training_, step, chunk).backward(gradient.narrow(0, begin, rows));
    begin += rows;
    if (rank == 0) keep_buffers(training_, 0);
    for (size_t i = 0; i < used_.size(); ++i)
      used_[i] = used_[i] || training_.parameters[i].tensor.grad().defined();
    buckets_.take(rank, std::vector<bool>(used_.size(), false));
  }
  buckets_.sum();
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) continue;
    // Added to zero, as LibTorch does it: no sum is -0.
    const at::Tensor sum = buckets_.result(i).add(0);
    (*sums)[i] = (*sums)[i].defined() ? (*sums)[i] + sum : sum;
  }
  load_kept_buffers();
}

// Of the loss over all chunks.
at::Tensor Replay::gradient_of_outputs(int64_t step, const std::vector<Batch>& chunks,
                                       double share) {
  std::vector<at::Tensor> outputs;
  {
    const c10::NoGradGuard no_grad;
    for (const Batch& chunk : chunks) {
      load_buffers(training_, 0);
      outputs.push_back(forward_of(training_, step, chunk));
    }
  }
  const at::Tensor gathered = at::cat(outputs).requires_grad_();
  loss_of(scenario_.loss, gathered, joined(chunks).target, 1, share).backward();
  return gathered.grad();
}

}  // namespace lockstep
