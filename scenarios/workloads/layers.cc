#include "scenarios/workloads/layers.h"

#include <ATen/ops/flatten.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>

#include <numeric>

#include "scenarios/base/check.h"
#include "scenarios/workloads/sync_batch_norm.h"

namespace lockstep {
namespace {

constexpr int64_t kGroupsMax = 32;

template <class Layer>
Norm norm_of(Layer layer) {
  return {layer.ptr(), [layer](const at::Tensor& x) mutable { return layer->forward(x); }};
}

template <class Layer>
Norm batch_norm(int64_t channels, bool frozen) {
  Layer layer(channels);
  if (frozen) layer->eval();
  return norm_of(layer);
}

}  // namespace

Activation activation_of(const std::string& name) {
  if (name == "relu") return [](const at::Tensor& x) { return at::relu(x); };
  if (name == "tanh") return [](const at::Tensor& x) { return at::tanh(x); };
  if (name == "gelu") return [](const at::Tensor& x) { return at::gelu(x); };
  LOCKSTEP_CHECK(name == "softplus", "no activation " + name);
  return [](const at::Tensor& x) { return at::softplus(x); };
}

at::Tensor as_rows(const at::Tensor& input) { return input.dim() > 2 ? input.flatten(1) : input; }

Norm make_norm(const std::string& kind, int64_t channels, bool images) {
  if (kind == "group") {
    const int64_t groups = std::gcd(channels, kGroupsMax);
    return norm_of(torch::nn::GroupNorm(torch::nn::GroupNormOptions(groups, channels)));
  }
  if (kind == "sync" || kind == "sync_equal")
    return norm_of(SyncBatchNorm(channels, kind == "sync"));
  LOCKSTEP_CHECK(kind == "batch" || kind == "frozen", "no norm " + kind);
  const bool frozen = kind == "frozen";
  return images ? batch_norm<torch::nn::BatchNorm2d>(channels, frozen)
                : batch_norm<torch::nn::BatchNorm1d>(channels, frozen);
}

}  // namespace lockstep
