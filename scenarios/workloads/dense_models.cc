#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "scenarios/base/check.h"
#include "scenarios/workloads/dtype.h"
#include "scenarios/workloads/models.h"

namespace lockstep {
namespace {

// Base of models whose layers LibTorch holds in one module.
class ModuleModel : public Model {
 public:
  explicit ModuleModel(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {}

  NamedTensors parameters() const override { return named(module_->named_parameters()); }
  NamedTensors buffers() const override { return named(module_->named_buffers()); }

 private:
  template <class Dict>
  static NamedTensors named(const Dict& dict) {
    NamedTensors result;
    for (const auto& item : dict) result.push_back({item.key(), item.value()});
    return result;
  }

  std::shared_ptr<torch::nn::Module> module_;
};

torch::nn::Linear make_layer(int64_t in, int64_t out, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

class LinearModel : public ModuleModel {
 public:
  explicit LinearModel(torch::nn::Linear layer) : ModuleModel(layer.ptr()), layer_(layer) {}
  at::Tensor forward(const at::Tensor& input) override { return layer_->forward(input); }

 private:
  torch::nn::Linear layer_;
};

using Activation = at::Tensor (*)(const at::Tensor&);

Activation activation_of(const std::string& name) {
  if (name == "relu") return [](const at::Tensor& x) { return at::relu(x); };
  if (name == "tanh") return [](const at::Tensor& x) { return at::tanh(x); };
  if (name == "gelu") return [](const at::Tensor& x) { return at::gelu(x); };
  LOCKSTEP_CHECK(name == "softplus", "no activation " + name);
  return [](const at::Tensor& x) { return at::softplus(x); };
}

class Layers : public torch::nn::Module {
 public:
  explicit Layers(const Options& options) : activation_(activation_of(options.text("activation"))) {
    std::vector<int64_t> widths = options.integers("hidden");
    widths.insert(widths.begin(), options.integer("in_features"));
    widths.push_back(options.integer("out_features"));
    for (size_t i = 1; i < widths.size(); ++i)
      layers_.push_back(register_module(
          "fc" + std::to_string(i), make_layer(widths[i - 1], widths[i], options.flag("bias"))));
  }

  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (i > 0) x = activation_(x);
      x = layers_[i]->forward(x);
    }
    return x;
  }

 private:
  Activation activation_;
  std::vector<torch::nn::Linear> layers_;
};

class MlpModel : public ModuleModel {
 public:
  explicit MlpModel(std::shared_ptr<Layers> layers) : ModuleModel(layers), layers_(layers) {}
  at::Tensor forward(const at::Tensor& input) override { return layers_->forward(input); }

 private:
  std::shared_ptr<Layers> layers_;
};

}  // namespace

std::unique_ptr<Model> build_linear(const Options& options, const std::string& dtype) {
  torch::nn::Linear layer = make_layer(options.integer("in_features"),
                                       options.integer("out_features"), options.flag("bias"));
  layer->to(scalar_type(dtype));
  return std::make_unique<LinearModel>(layer);
}

std::unique_ptr<Model> build_mlp(const Options& options, const std::string& dtype) {
  auto layers = std::make_shared<Layers>(options);
  layers->to(scalar_type(dtype));
  return std::make_unique<MlpModel>(layers);
}

}  // namespace lockstep
