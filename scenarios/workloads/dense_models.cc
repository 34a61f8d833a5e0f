#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "scenarios/optional_keys.h"
#include "scenarios/workloads/dropout.h"
#include "scenarios/workloads/layers.h"
#include "scenarios/workloads/module_of.h"
#include "scenarios/workloads/recompute.h"

namespace lockstep {
namespace {

torch::nn::Linear make_layer(int64_t in, int64_t out, bool bias = true) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

class LinearModel : public ModuleModel {
 public:
  explicit LinearModel(torch::nn::Linear layer) : ModuleModel(layer.ptr()), layer_(layer) {}
  at::Tensor forward(const at::Tensor& input) override { return layer_->forward(as_rows(input)); }

 private:
  torch::nn::Linear layer_;
};

// Linear layers, between them a norm (if any), an activation and dropout (if any).
class Layers : public torch::nn::Module {
 public:
  Layers(const Options& options, bool bias, const std::string& norm)
      : activation_(activation_of(options.text("activation"))),
        checkpointing_(checkpointing_of(options)),
        dropout_(dropout_of(options)) {
    std::vector<int64_t> widths = options.integers("hidden");
    widths.insert(widths.begin(), options.integer("in_features"));
    widths.push_back(options.integer("out_features"));
    register_module("dropout", dropout_);
    const bool backwards = registers_backwards(options);
    for (size_t i = 1; i < widths.size(); ++i) {
      const std::string number = std::to_string(i);
      layers_.push_back(make_layer(widths[i - 1], widths[i], bias));
      if (!backwards) register_module("fc" + number, layers_.back());
      if (norm.empty() || i + 1 == widths.size()) continue;
      norms_.push_back(make_norm(norm, widths[i], false));
      register_module("bn" + number, norms_.back().module);
    }
    for (size_t i = layers_.size(); backwards && i > 0; --i)
      register_module("fc" + std::to_string(i), layers_[i - 1]);
    for (size_t i = 0; i < layers_.size(); ++i)
      segments_.push_back(
          {[this, i](const at::Tensor& x) { return apply(i, dropout_(activation_(x))); },
           layers_[i]->parameters()});
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = apply(0, as_rows(input));
    for (size_t i = 1; i < layers_.size(); ++i) {
      if (!norms_.empty()) x = norms_[i - 1].forward(x);
      x = checkpointed(checkpointing_, segments_[i], x);
    }
    return x.to(input.scalar_type());
  }

  // Layers from 1.
  void widen(const std::vector<int64_t>& numbers) {
    for (const int64_t number : numbers)
      convert(*layers_.at(static_cast<size_t>(number - 1)), "float64");
  }

 private:
  at::Tensor apply(size_t layer, const at::Tensor& x) {
    return layers_[layer]->forward(x.to(layers_[layer]->weight.scalar_type()));
  }

  Activation activation_;
  const std::string checkpointing_;
  Dropout dropout_;
  std::vector<torch::nn::Linear> layers_;
  std::vector<Norm> norms_;
  std::vector<Segment> segments_;  // each layer with the activation before it
};

class AutoEncoder : public torch::nn::Module {
 public:
  AutoEncoder(int64_t features, int64_t hidden) {
    const std::vector<int64_t> widths = {features, hidden, hidden, hidden, features};
    for (size_t i = 1; i < widths.size(); ++i)
      layers_.push_back(
          register_module("fc" + std::to_string(i), make_layer(widths[i - 1], widths[i])));
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = as_rows(input);
    for (torch::nn::Linear& layer : layers_) x = at::relu(layer->forward(x));
    return x;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

}  // namespace

std::unique_ptr<Model> build_linear(const Options& options, const std::string& dtype) {
  torch::nn::Linear layer = make_layer(options.integer("in_features"),
                                       options.integer("out_features"), options.flag("bias"));
  convert(*layer, dtype);
  return std::make_unique<LinearModel>(layer);
}

std::unique_ptr<Model> build_mlp(const Options& options, const std::string& dtype) {
  auto layers = std::make_shared<Layers>(options, options.flag("bias"), "");
  convert(*layers, dtype);
  if (options.has("float64_layers")) layers->widen(options.integers("float64_layers"));
  return std::make_unique<ModelOf<Layers>>(std::move(layers));
}

std::unique_ptr<Model> build_batch_norm_mlp(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<Layers>(options, true, options.text("norm")), dtype);
}

std::unique_ptr<Model> build_autoencoder(const Options& options, const std::string& dtype) {
  return model_of(
      std::make_shared<AutoEncoder>(options.integer("features"), options.integer("hidden")), dtype);
}

}  // namespace lockstep
