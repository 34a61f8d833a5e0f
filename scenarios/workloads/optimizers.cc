#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "scenarios/workloads/wrapped_optimizer.h"

namespace lockstep {
namespace {

std::unique_ptr<Optimizer> build_sgd(const Options& options, const NamedTensors& parameters) {
  using State = torch::optim::SGDParamState;
  using Sgd = Wrapped<torch::optim::SGD, State>;
  const double momentum = options.number("momentum");
  std::vector<Sgd::Word> words;
  if (momentum != 0)
    words.push_back(
        {"momentum_buffer", [](State& s) -> at::Tensor& { return s.momentum_buffer(); }});
  return std::make_unique<Sgd>(parameters,
                               torch::optim::SGDOptions(options.number("lr"))
                                   .momentum(momentum)
                                   .dampening(options.number("dampening"))
                                   .weight_decay(options.number("weight_decay"))
                                   .nesterov(options.flag("nesterov")),
                               std::move(words));
}

std::unique_ptr<Optimizer> build_adagrad(const Options& options, const NamedTensors& parameters) {
  using State = torch::optim::AdagradParamState;
  using Adagrad = Wrapped<torch::optim::Adagrad, State>;
  std::vector<Adagrad::Word> words = {
      {"sum", [](State& s) -> at::Tensor& { return s.sum(); }},
      {"step", nullptr, [](State& s) -> int64_t& { return s.step(); }}};
  return std::make_unique<Adagrad>(
      parameters,
      torch::optim::AdagradOptions(options.number("lr"))
          .lr_decay(options.number("lr_decay"))
          .weight_decay(options.number("weight_decay"))
          .initial_accumulator_value(options.number("initial_accumulator"))
          .eps(options.number("eps")),
      std::move(words));
}

std::unique_ptr<Optimizer> build_rmsprop(const Options& options, const NamedTensors& parameters) {
  using State = torch::optim::RMSpropParamState;
  using Rmsprop = Wrapped<torch::optim::RMSprop, State>;
  const double momentum = options.number("momentum");
  const bool centered = options.flag("centered");
  std::vector<Rmsprop::Word> words = {
      {"square_avg", [](State& s) -> at::Tensor& { return s.square_avg(); }}};
  if (momentum != 0)
    words.push_back(
        {"momentum_buffer", [](State& s) -> at::Tensor& { return s.momentum_buffer(); }});
  if (centered) words.push_back({"grad_avg", [](State& s) -> at::Tensor& { return s.grad_avg(); }});
  words.push_back({"step", nullptr, [](State& s) -> int64_t& { return s.step(); }});
  return std::make_unique<Rmsprop>(parameters,
                                   torch::optim::RMSpropOptions(options.number("lr"))
                                       .alpha(options.number("alpha"))
                                       .eps(options.number("eps"))
                                       .weight_decay(options.number("weight_decay"))
                                       .momentum(momentum)
                                       .centered(centered),
                                   std::move(words));
}

}  // namespace

std::unique_ptr<Optimizer> build_optimizer(const Part& part, const NamedTensors& parameters) {
  if (part.kind == "sgd") return build_sgd(part.options, parameters);
  if (part.kind == "adam") return build_adam(part.options, parameters);
  if (part.kind == "adamw") return build_adamw(part.options, parameters);
  if (part.kind == "adagrad") return build_adagrad(part.options, parameters);
  LOCKSTEP_CHECK(part.kind == "rmsprop", "no optimizer " + part.kind);
  return build_rmsprop(part.options, parameters);
}

}  // namespace lockstep
