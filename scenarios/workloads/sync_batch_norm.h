#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "scenarios/workloads/batch_group.h"

namespace lockstep {

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
