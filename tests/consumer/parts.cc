// A model, a data set, two reducers and a comm hook that lockstep knows nothing of.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "reducer/base/reducer_base.h"
#include "reducer/comm_hook.h"
#include "reducer/registry.h"
#include "scenarios/workloads/registry.h"

namespace {

// Two layers whose second one sees the first one's output twice.
class TwiceImpl : public torch::nn::Module {
 public:
  explicit TwiceImpl(const lockstep::Options& options)
      : first_(register_module("first", torch::nn::Linear(8, options.integer("hidden")))),
        second_(register_module("second", torch::nn::Linear(2 * options.integer("hidden"), 4))) {}
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor hidden = at::tanh(first_->forward(input));
    return second_->forward(at::cat({hidden, hidden * hidden}, 1));
  }

 private:
  torch::nn::Linear first_, second_;
};
LOCKSTEP_REGISTER_MODEL("twice", TwiceImpl);

// Sums of sines with noise.
lockstep::Batch waves(const lockstep::Options& options, int64_t samples) {
  const at::Tensor input = at::rand({samples, 8}, at::kFloat);
  const at::Tensor noise = at::randn({samples, 4}, at::kFloat) * options.number("noise");
  return {input, at::sin(input.narrow(1, 0, 4) * 6) + input.narrow(1, 4, 4) + noise};
}
LOCKSTEP_REGISTER_DATA_SET("waves", waves);

// After backward, one gradient after the other; `times` is 1 but where a test wants it wrong.
class OneByOne : public lockstep::ReducerBase {
 public:
  explicit OneByOne(const lockstep::ReducerParts& parts)
      : ReducerBase(parts.options, parts.parameters, parts.buffers, parts.communicator,
                    parts.probe),
        divisor_(static_cast<double>(world_size_) * parts.options.own.number("times")) {}
  void before_backward(const std::vector<at::Tensor>&) override {}
  void after_backward() override {
    for (const at::Tensor& parameter : trained_.tensors) {
      all_reduce(parameter.grad())->wait();
      parameter.grad().div_(divisor_);
    }
  }

 private:
  const double divisor_;
};
LOCKSTEP_REGISTER_REDUCER("one_by_one", OneByOne);

// Loses a rank that ends by itself in step 2.
class Quits : public OneByOne {
 public:
  explicit Quits(const lockstep::ReducerParts& parts) : OneByOne(parts) {}
  void after_backward() override {
    if (++steps_ == 2 && communicator_.rank() == 1) throw std::runtime_error("I quit");
    OneByOne::after_backward();
  }

 private:
  int steps_ = 0;
};
LOCKSTEP_REGISTER_REDUCER("quits", Quits);

// Sums halves of a bucket one after the other.
class InHalves : public lockstep::CommHook {
 public:
  Finish start(const lockstep::HookBucket& bucket, lockstep::HookGroup& group) override {
    const at::Tensor all = bucket.gradients;
    const int64_t half = all.numel() / 2;
    const auto first = group.all_reduce(all.narrow(0, 0, half));
    const auto second = group.all_reduce(all.narrow(0, half, all.numel() - half));
    return [=, ranks = group.world_size()] {
      first->wait();
      second->wait();
      return all / ranks;
    };
  }
};
LOCKSTEP_REGISTER_COMM_HOOK("in_halves", InHalves);

}  // namespace
