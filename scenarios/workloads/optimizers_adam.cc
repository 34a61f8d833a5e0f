#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "scenarios/workloads/wrapped_optimizer.h"

namespace lockstep {
namespace {

// Both keep the same things under the same names.
template <class LibTorchOptimizer, class State, class LibTorchOptions>
std::unique_ptr<Optimizer> build(const Options& options, const NamedTensors& parameters) {
  using Adam = Wrapped<LibTorchOptimizer, State>;
  const bool amsgrad = options.flag("amsgrad");
  std::vector<typename Adam::Word> words = {
      {"exp_avg", [](State& s) -> at::Tensor& { return s.exp_avg(); }},
      {"exp_avg_sq", [](State& s) -> at::Tensor& { return s.exp_avg_sq(); }}};
  if (amsgrad)
    words.push_back({"max_exp_avg_sq", [](State& s) -> at::Tensor& { return s.max_exp_avg_sq(); }});
  words.push_back({"step", nullptr, [](State& s) -> int64_t& { return s.step(); }});
  return std::make_unique<Adam>(
      parameters,
      LibTorchOptions(options.number("lr"))
          .betas(std::make_tuple(options.number("beta1"), options.number("beta2")))
          .eps(options.number("eps"))
          .weight_decay(options.number("weight_decay"))
          .amsgrad(amsgrad),
      std::move(words));
}

}  // namespace

std::unique_ptr<Optimizer> build_adam(const Options& options, const NamedTensors& parameters) {
  return build<torch::optim::Adam, torch::optim::AdamParamState, torch::optim::AdamOptions>(
      options, parameters);
}

std::unique_ptr<Optimizer> build_adamw(const Options& options, const NamedTensors& parameters) {
  return build<torch::optim::AdamW, torch::optim::AdamWParamState, torch::optim::AdamWOptions>(
      options, parameters);
}

}  // namespace lockstep
