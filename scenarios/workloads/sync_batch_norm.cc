#include "scenarios/workloads/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace lockstep {
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
