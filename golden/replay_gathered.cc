#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "golden/replay.h"
#include "scenarios/workloads/forward.h"
#include "scenarios/workloads/loss_scaling.h"

namespace lockstep {
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
