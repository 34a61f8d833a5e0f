#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// LibTorch keeps a parameter's state under its address: as text in older versions, as it is in
// newer ones.
template <class Key>
Key state_key(const at::Tensor& parameter) {
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return text.str();
  } else {
    return Key(parameter.unsafeGetTensorImpl());
  }
}

// A file keeps values, not strides; state that a first update makes has the parameter's. They
// decide which elements a kernel takes one by one, and so how half precision rounds.
inline at::Tensor laid_out_like(const at::Tensor& parameter, const at::Tensor& value) {
  if (value.sizes() != parameter.sizes()) return value.detach().clone();
  return at::empty_like(parameter, value.options()).copy_(value).detach();
}

// `ParamState`: LibTorch's class of one parameter's state. A `Word` names one thing in it: a tensor
// or the number of steps taken.
template <class LibTorchOptimizer, class ParamState>
class Wrapped : public Optimizer {
 public:
  struct Word {
    std::string name;
    at::Tensor& (*tensor)(ParamState&) = nullptr;
    int64_t& (*counter)(ParamState&) = nullptr;
  };

  template <class LibTorchOptions>
  Wrapped(const NamedTensors& parameters, const LibTorchOptions& options, std::vector<Word> words)
      : optimizer_(tensors_of(parameters), options), words_(std::move(words)) {
    for (const NamedTensor& parameter : parameters) {
      tensors_.push_back(parameter.tensor);
      keys_.push_back(state_key<Key>(parameter.tensor));
      for (const Word& word : words_) names_.push_back(parameter.name + "." + word.name);
    }
  }

  void step() override { optimizer_.step(); }
  double lr() const override { return optimizer_.param_groups().front().options().get_lr(); }
  void set_lr(double lr) override {
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(lr);
  }

  NamedTensors state() const override {
    NamedTensors result;
    if (words_.empty()) return result;
    result.reserve(names_.size());
    const auto& states = optimizer_.state();
    for (const Key& key : keys_) {
      const auto found = states.find(key);
      auto* state = found == states.end() ? nullptr : static_cast<ParamState*>(found->second.get());
      for (const Word& word : words_)
        result.push_back({names_[result.size()], value_of(word, state)});
    }
    return result;
  }

  void load(const NamedTensors& saved) override {
    LOCKSTEP_CHECK(saved.size() == names_.size(), "another optimizer's state");
    for (size_t i = 0; i < saved.size(); ++i)
      LOCKSTEP_CHECK(saved[i].name == names_[i], "no optimizer state " + saved[i].name);
    if (words_.empty()) return;
    for (size_t p = 0; p < keys_.size(); ++p) load_parameter(p, &saved[p * words_.size()]);
  }

 private:
  using Map = std::remove_cvref_t<decltype(std::declval<const LibTorchOptimizer&>().state())>;
  using Key = typename Map::key_type;

  static at::Tensor value_of(const Word& word, ParamState* state) {
    if (word.counter != nullptr)
      return at::scalar_tensor(state == nullptr ? int64_t{0} : word.counter(*state), at::kLong)
          .reshape({1});
    return state == nullptr ? at::Tensor() : word.tensor(*state);
  }

  // saved: one for each word. A parameter without any tensor has not been updated yet: LibTorch
  // makes its state at the first update only if there is none.
  void load_parameter(size_t parameter, const NamedTensor* saved) {
    const Key& key = keys_[parameter];
    bool any = false;
    for (size_t w = 0; w < words_.size(); ++w)
      any = any || (words_[w].tensor != nullptr && saved[w].tensor.defined());
    optimizer_.state().erase(key);
    if (!any) return;
    auto state = std::make_unique<ParamState>();
    for (size_t w = 0; w < words_.size(); ++w) {
      const at::Tensor& value = saved[w].tensor;
      if (words_[w].counter != nullptr)
        words_[w].counter(*state) = value.template item<int64_t>();
      else if (value.defined())
        words_[w].tensor(*state) = laid_out_like(tensors_[parameter], value);
    }
    optimizer_.state()[key] = std::move(state);
  }

  LibTorchOptimizer optimizer_;
  std::vector<Word> words_;
  std::vector<at::Tensor> tensors_;  // per parameter
  std::vector<Key> keys_;            // per parameter
  std::vector<std::string> names_;   // per parameter and word
};

// One function per family of optimizers.
std::unique_ptr<Optimizer> build_adam(const Options& options, const NamedTensors& parameters);
std::unique_ptr<Optimizer> build_adamw(const Options& options, const NamedTensors& parameters);

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
