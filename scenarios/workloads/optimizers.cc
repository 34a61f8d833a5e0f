#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <sstream>
#include <type_traits>

#include "scenarios/base/check.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

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

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& item : named) tensors.push_back(item.tensor);
  return tensors;
}

// `ParamState`: LibTorch's class of one parameter's state. `Word` names a tensor in it and reads
// it.
template <class LibTorchOptimizer, class ParamState>
class Wrapped : public Optimizer {
 public:
  struct Word {
    std::string name;
    at::Tensor (*read)(const ParamState&);
  };

  template <class LibTorchOptions>
  Wrapped(const NamedTensors& parameters, const LibTorchOptions& options, std::vector<Word> words)
      : optimizer_(tensors_of(parameters), options), words_(std::move(words)) {
    for (const NamedTensor& parameter : parameters) {
      keys_.push_back(state_key<Key>(parameter.tensor));
      for (const Word& word : words_) names_.push_back(parameter.name + "." + word.name);
    }
  }

  void step() override { optimizer_.step(); }

  NamedTensors state() const override {
    NamedTensors result;
    if (words_.empty()) return result;
    result.reserve(names_.size());
    const auto& states = optimizer_.state();
    for (const Key& key : keys_) {
      const auto found = states.find(key);
      for (const Word& word : words_) {
        at::Tensor tensor;
        if (found != states.end())
          tensor = word.read(static_cast<const ParamState&>(*found->second));
        result.push_back({names_[result.size()], std::move(tensor)});
      }
    }
    return result;
  }

 private:
  using Map = std::remove_cvref_t<decltype(std::declval<const LibTorchOptimizer&>().state())>;
  using Key = typename Map::key_type;

  LibTorchOptimizer optimizer_;
  std::vector<Word> words_;
  std::vector<Key> keys_;           // per parameter
  std::vector<std::string> names_;  // per parameter and word
};

std::unique_ptr<Optimizer> build_sgd(const Options& options, const NamedTensors& parameters) {
  using State = torch::optim::SGDParamState;
  using Sgd = Wrapped<torch::optim::SGD, State>;
  const double momentum = options.number("momentum");
  std::vector<Sgd::Word> words;
  if (momentum != 0)
    words.push_back({"momentum_buffer", [](const State& s) { return s.momentum_buffer(); }});
  return std::make_unique<Sgd>(parameters,
                               torch::optim::SGDOptions(options.number("lr"))
                                   .momentum(momentum)
                                   .dampening(options.number("dampening"))
                                   .weight_decay(options.number("weight_decay"))
                                   .nesterov(options.flag("nesterov")),
                               std::move(words));
}

std::unique_ptr<Optimizer> build_adam(const Options& options, const NamedTensors& parameters) {
  using State = torch::optim::AdamParamState;
  using Adam = Wrapped<torch::optim::Adam, State>;
  const bool amsgrad = options.flag("amsgrad");
  std::vector<Adam::Word> words = {{"exp_avg", [](const State& s) { return s.exp_avg(); }},
                                   {"exp_avg_sq", [](const State& s) { return s.exp_avg_sq(); }}};
  if (amsgrad)
    words.push_back({"max_exp_avg_sq", [](const State& s) { return s.max_exp_avg_sq(); }});
  return std::make_unique<Adam>(
      parameters,
      torch::optim::AdamOptions(options.number("lr"))
          .betas(std::make_tuple(options.number("beta1"), options.number("beta2")))
          .eps(options.number("eps"))
          .weight_decay(options.number("weight_decay"))
          .amsgrad(amsgrad),
      std::move(words));
}

}  // namespace

std::unique_ptr<Optimizer> build_optimizer(const Part& part, const NamedTensors& parameters) {
  if (part.kind == "sgd") return build_sgd(part.options, parameters);
  LOCKSTEP_CHECK(part.kind == "adam", "no optimizer " + part.kind);
  return build_adam(part.options, parameters);
}

}  // namespace lockstep
