#include "scenarios/workloads/layers.h"

#include <ATen/ATen.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>

#include <numeric>

#include "scenarios/base/error.h"

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

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Again {
  at::Tensor input, output;
};

Again run_again(AutogradContext* context, const Segment& segment) {
  const at::Tensor saved = context->get_saved_variables()[0];
  const at::Tensor input = saved.detach().requires_grad_(true);
  return {input, segment.run(input)};
}

const Segment& segment_of(AutogradContext* context) {
  return *reinterpret_cast<const Segment*>(context->saved_data["segment"].toInt());
}

// An IValue holds no pointer.
void save(AutogradContext* context, const at::Tensor& input, const Segment* segment) {
  context->save_for_backward({input});
  context->saved_data["segment"] = reinterpret_cast<int64_t>(segment);
}

class Reentrant : public torch::autograd::Function<Reentrant> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const Segment* segment) {
    save(context, input, segment);
    return segment->run(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& above) {
    const c10::AutoGradMode with_grad(true);
    const Again again = run_again(context, segment_of(context));
    torch::autograd::backward({again.output}, {above[0]});
    return {again.input.grad(), at::Tensor()};
  }
};

class NonReentrant : public torch::autograd::Function<NonReentrant> {
 public:
  // `parameters` in the order in which their gradients become ready without checkpointing: that of
  // a layer's backward, which is the reverse of registration.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, at::TensorList,
                            const Segment* segment) {
    save(context, input, segment);
    return segment->run(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& above) {
    const Segment& segment = segment_of(context);
    const c10::AutoGradMode with_grad(true);
    const Again again = run_again(context, segment);
    variable_list wanted = {again.input};
    for (auto it = segment.parameters.rbegin(); it != segment.parameters.rend(); ++it)
      if (it->requires_grad()) wanted.push_back(*it);
    const variable_list found = torch::autograd::grad({again.output}, wanted, {above[0]});
    variable_list below = {found[0]};
    size_t next = 1;
    for (auto it = segment.parameters.rbegin(); it != segment.parameters.rend(); ++it)
      below.push_back(it->requires_grad() ? found[next++] : at::Tensor());
    below.emplace_back();  // of the segment itself
    return below;
  }
};

}  // namespace

std::string checkpointing_of(const Options& model) {
  return model.has("checkpointing") ? model.text("checkpointing") : "none";
}

at::Tensor checkpointed(const std::string& how, const Segment& segment, const at::Tensor& input) {
  if (how == "none") return segment.run(input);
  if (how == "reentrant") return Reentrant::apply(input, &segment);
  LOCKSTEP_CHECK(how == "non_reentrant", "no checkpointing " + how);
  const std::vector<at::Tensor> last_first(segment.parameters.rbegin(), segment.parameters.rend());
  return NonReentrant::apply(input, at::TensorList(last_first), &segment);
}

namespace {

constexpr double kMomentum = 0.1, kEps = 1e-5;  // BatchNorm's defaults

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<int64_t> dims = {0};
  for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

// [channels] in the shape and dtype that goes with every element of x.
at::Tensor beside(const at::Tensor& of_channel, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = -1;
  return of_channel.to(x.scalar_type()).view(shape);
}

// Over all ranks, [channels] in double.
struct Moments {
  at::Tensor mean;
  at::Tensor variance;  // biased
  double count = 0;     // of numbers of a channel
};

Moments moments_of_all(const at::Tensor& x, bool weighted, BatchGroup& group) {
  const int64_t channels = x.size(1);
  const auto [variance, mean] = at::var_mean(x, all_but_channels(x), /*unbiased=*/false);
  const at::Tensor own = at::full({1}, static_cast<double>(x.numel() / channels), at::kDouble);
  const at::Tensor rows =
      group.all_gather(at::cat({mean.to(at::kDouble), variance.to(at::kDouble), own}));
  at::Tensor counts = rows.select(1, 2 * channels);
  Moments all;
  all.count = counts.sum().item<double>();
  if (!weighted) counts = at::full_like(counts, all.count / static_cast<double>(counts.numel()));
  const at::Tensor share = (counts / all.count).unsqueeze(1);
  const at::Tensor means = rows.narrow(1, 0, channels);
  all.mean = (means * share).sum(0);
  const at::Tensor around = rows.narrow(1, channels, channels) + (means - all.mean).square();
  all.variance = (around * share).sum(0);
  return all;
}

class Normalize : public torch::autograd::Function<Normalize> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean,
                            const at::Tensor& inverse_deviation, double count, BatchGroup* group) {
    context->save_for_backward({x, weight, mean, inverse_deviation});
    context->saved_data["count"] = count;
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);  // an IValue holds no pointer
    return (x - beside(mean, x)) * beside(inverse_deviation, x) * beside(weight, x) +
           beside(bias, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &inverse_deviation = saved[3];
    const at::Tensor centered = x - beside(saved[2], x);
    const at::Tensor& above = gradients[0];
    const at::Tensor sums = at::cat({above.sum(all_but_channels(x)).to(at::kDouble),
                                     (above * centered).sum(all_but_channels(x)).to(at::kDouble)});
    auto* group = reinterpret_cast<BatchGroup*>(context->saved_data["group"].toInt());
    const auto averages =
        (group->all_gather(sums).sum(0) / context->saved_data["count"].toDouble()).chunk(2);
    const at::Tensor slope = inverse_deviation.square() * averages[1];
    const at::Tensor below = (above - beside(averages[0], x) - centered * beside(slope, x)) *
                             beside(inverse_deviation, x) * beside(weight, x);
    const auto own = sums.chunk(2);
    return {below,
            (own[1] * inverse_deviation).to(weight.scalar_type()),
            own[0].to(weight.scalar_type()),
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

// As BatchNorm starts, and in its order.
SyncBatchNormImpl::SyncBatchNormImpl(int64_t channels, bool weighted) : weighted_(weighted) {
  weight = register_parameter("weight", at::ones({channels}));
  bias = register_parameter("bias", at::zeros({channels}));
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  num_batches_tracked += 1;
  if (group_ == nullptr)
    return at::batch_norm(input, weight, bias, running_mean, running_var, true, kMomentum, kEps,
                          false);
  const at::Tensor given = input.detach();
  const Moments all = moments_of_all(given, weighted_, *group_);
  const at::Tensor unbiased = all.variance * (all.count / (all.count - 1));
  running_mean.mul_(1 - kMomentum).add_(all.mean.to(running_mean.scalar_type()), kMomentum);
  running_var.mul_(1 - kMomentum).add_(unbiased.to(running_var.scalar_type()), kMomentum);
  const at::Tensor inverse_deviation = (all.variance + kEps).rsqrt();
  return Normalize::apply(input, weight, bias, all.mean, inverse_deviation, all.count, group_);
}

}  // namespace lockstep
