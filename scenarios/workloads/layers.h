#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

namespace torch::nn {
class Module;
}

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

}  // namespace lockstep
