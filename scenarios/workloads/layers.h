#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scenarios/base/part.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

using Activation = at::Tensor (*)(const at::Tensor&);
// relu, tanh, gelu, softplus; other names abort.
Activation activation_of(const std::string& name);

// [samples, ...] as [samples, features].
at::Tensor as_rows(const at::Tensor& input);

// A layer that the owner registers under a name of its choice.
struct Norm {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};
// Over channels of [samples, channels] or, for images, [samples, channels, height, width].
// batch: with the statistics of the batch. frozen: BatchNorm as in evaluation, with those it has
// stored. group: with those of each sample, up to 32 groups. sync, sync_equal: with those of all
// ranks' samples, weighted by their number or not (sync_batch_norm.h).
Norm make_norm(const std::string& kind, int64_t channels, bool images);

// A part of a model that activation checkpointing computes twice. It must outlive the last backward
// and stay where it is.
struct Segment {
  std::function<at::Tensor(const at::Tensor&)> run;
  std::vector<at::Tensor> parameters;  // all that run() uses
};

// A model's; none where it knows no checkpointing.
std::string checkpointing_of(const Options& model);

// run(input), of which nothing is kept but the input: backward computes it again.
// how: reentrant: and calls backward on it, which leaves the parameters' gradients; the graph of
//      the result does not lead to the parameters, and where `input` needs no gradient they get
//      none. As torch.utils.checkpoint with use_reentrant.
//      non_reentrant: the parameters are inputs of the node, and get their gradients from it.
//      none: run(input).
at::Tensor checkpointed(const std::string& how, const Segment& segment, const at::Tensor& input);

// BatchNorm with the statistics of the samples of all ranks of a group, as torch.nn.SyncBatchNorm
// (LibTorch has none): in forward ranks exchange mean, variance and number of their own samples, in
// backward the sums over samples that the input's gradient depends on. All sums over ranks are
// made here, in order of rank: the communicator's algorithm decides no bit. Without a group it is
// BatchNorm. Input: [samples, channels, ...]. Parameters and buffers are BatchNorm's.
// Not derived from LibTorch's BatchNorm, of which it does not export all that a class needs.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  // weighted: by the ranks' numbers of samples. Otherwise all ranks count alike, which is wrong
  // where shards differ in size.
  SyncBatchNormImpl(int64_t channels, bool weighted);

  // Must outlive the last forward and backward; nullptr: none.
  void use(BatchGroup* group) { group_ = group; }
  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  const bool weighted_;
  BatchGroup* group_ = nullptr;
};

TORCH_MODULE(SyncBatchNorm);

}  // namespace lockstep
