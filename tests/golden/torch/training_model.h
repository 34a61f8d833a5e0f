#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "reducer/reducer.h"
#include "tests/golden/torch/scenarios.h"
#include "tests/reducer/test_group.h"

namespace lockstep {

// What a small test model has besides its first and its last layer.
struct Features {
  bool branch = false;  // used only by a forward in which some sample's input 0 is positive
  bool norm = false;    // batch normalization: buffers that every forward changes
  bool frozen = false;  // a layer without requires_grad
  bool tied = false;    // one layer that is used twice
  bool mixed = false;   // a layer in double between those in float32
  std::string half{};   // a layer in "float16" or "bfloat16", or none
};

class FeatureModel : public Model {
 public:
  FeatureModel(const Features& features, uint64_t seed) : features_(features), seed_(seed) {
    add_layer("first", kFeatures, kWidth, at::kFloat);
    if (features.branch) add_layer("branch", kWidth, kWidth, at::kFloat);
    if (features.frozen) add_layer("frozen", kWidth, kWidth, at::kFloat, false);
    if (features.tied) add_layer("tied", kWidth, kWidth, at::kFloat);
    if (features.mixed) add_layer("double", kWidth, kWidth, at::kDouble);
    if (features.half == "float16") add_layer("half", kWidth, kWidth, at::kHalf);
    if (features.half == "bfloat16") add_layer("half", kWidth, kWidth, at::kBFloat16);
    if (features.norm) {
      add("norm.weight", {kWidth}, at::kFloat);
      add("norm.bias", {kWidth}, at::kFloat);
      buffers_ = {{"norm.mean", at::zeros({kWidth})}, {"norm.variance", at::ones({kWidth})}};
    }
    add_layer("last", kWidth, kTargets, at::kFloat);
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = layer("first", input);
    if (features_.branch && (input.select(1, 0) > 0).any().item<bool>()) x = x + layer("branch", x);
    if (features_.frozen) x = at::tanh(layer("frozen", x));
    if (features_.tied) x = at::tanh(layer("tied", at::tanh(layer("tied", x))));
    if (features_.mixed) x = layer("double", x.to(at::kDouble)).to(at::kFloat);
    if (!features_.half.empty()) x = half_layer(x);
    if (features_.norm)
      x = at::batch_norm(x, find("norm.weight"), find("norm.bias"), buffers_[0].tensor,
                         buffers_[1].tensor, true, 0.1, 1e-5, false);
    return layer("last", at::tanh(x));
  }
  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override { return buffers_; }

  static constexpr int64_t kFeatures = 7, kWidth = 9, kTargets = 3;

 private:
  void add(const std::string& name, at::IntArrayRef shape, at::ScalarType type,
           bool trained = true) {
    parameters_.push_back(
        {name, random_tensor(shape, seed_++).mul_(0.3).to(type).requires_grad_(trained)});
  }
  void add_layer(const std::string& name, int64_t in, int64_t out, at::ScalarType type,
                 bool trained = true) {
    add(name + ".weight", {out, in}, type, trained);
    add(name + ".bias", {out}, type, trained);
  }
  const at::Tensor& find(const std::string& name) const {
    for (const NamedTensor& parameter : parameters_)
      if (parameter.name == name) return parameter.tensor;
    throw std::runtime_error("no " + name);
  }
  at::Tensor layer(const std::string& name, const at::Tensor& x) const {
    return at::linear(x, find(name + ".weight"), find(name + ".bias"));
  }
  // No matrix product: not every CPU has one for half types.
  at::Tensor half_layer(const at::Tensor& x) const {
    return x * find("half.bias").to(at::kFloat) + find("half.weight").to(at::kFloat).sum(0);
  }

  const Features features_;
  uint64_t seed_;
  NamedTensors parameters_, buffers_;
};

inline Training feature_training(const Scenario& scenario, const Features& features,
                                 uint64_t seed) {
  Training training;
  training.model = std::make_unique<FeatureModel>(features, seed);
  training.parameters = training.model->parameters();
  training.buffers = training.model->buffers();
  note_buffers(&training);
  training.optimizer = build_optimizer(scenario.optimizer, training.parameters);
  return training;
}

}  // namespace lockstep
