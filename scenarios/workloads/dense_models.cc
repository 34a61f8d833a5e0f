#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>
#include <torch/nn/modules/linear.h>

#include <utility>

#include "scenarios/base/error.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/dropout.h"
#include "scenarios/workloads/layers.h"
#include "scenarios/workloads/models.h"

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
        repeat_(options.has("repeat") ? options.integer("repeat") : 1),
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
      for (int64_t left = times_of(i); left > 0; --left)
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

  int64_t times_of(size_t layer) const {
    const auto& shape = layers_[layer]->options;
    return shape.in_features() == shape.out_features() ? repeat_ : 1;
  }

  Activation activation_;
  const std::string checkpointing_;
  const int64_t repeat_;
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

namespace {

// none: both branches see every sample. always: the right one sees none, on any rank. routed: each
// sample takes the branch of the sign of its feature 0, so that a rank may leave one untouched.
class Branches : public torch::nn::Module {
 public:
  explicit Branches(const Options& options)
      : unused_(options.text("unused")),
        first_(options.has("first") ? options.text("first") : "left"),
        out_(options.integer("out_features")),
        trunk_(register_module(
            "trunk", torch::nn::Linear(options.integer("in_features"), options.integer("hidden")))),
        left_(register_module("left", torch::nn::Linear(options.integer("hidden"), out_))),
        right_(register_module("right", torch::nn::Linear(options.integer("hidden"), out_))),
        checkpointing_(checkpointing_of(options)) {}

  at::Tensor forward(const at::Tensor& given) {
    const at::Tensor input = as_rows(given);
    const at::Tensor x = at::tanh(trunk_->forward(input));
    if (unused_ == "always") return run(run_left_, x);
    if (unused_ == "routed") return routed(x, input.select(1, 0) > 0);
    LOCKSTEP_CHECK(unused_ == "none", "no such use of branches: " + unused_);
    return first_ == "left" ? sum_of(x) : by_sample(x, input[0][0].item<double>() > 0);
  }

 private:
  at::Tensor routed(const at::Tensor& x, const at::Tensor& to_left) {
    at::Tensor output = at::zeros({x.size(0), out_}, x.options());
    const auto add = [&](const Segment& branch, const at::Tensor& chosen) {
      const at::Tensor rows = chosen.nonzero().squeeze(1);
      if (rows.numel() > 0)
        output = output.index_copy(0, rows, run(branch, x.index_select(0, rows)));
    };
    add(run_left_, to_left);
    add(run_right_, to_left.logical_not());
    return output;
  }

  at::Tensor sum_of(const at::Tensor& x) const {
    const at::Tensor left = run(run_left_, x);  // first: C++ leaves the order within a sum open
    return left + run(run_right_, x);
  }

  // Branches that are not alike, whose gradients would be: who takes one's for the other's is
  // wrong.
  at::Tensor by_sample(const at::Tensor& x, bool left_first) const {
    at::Tensor left, right;
    if (left_first) left = run(run_left_, x);
    right = run(run_right_, x);
    if (!left_first) left = run(run_left_, x);
    return left + at::tanh(right);
  }

  at::Tensor run(const Segment& branch, const at::Tensor& x) const {
    return checkpointed(checkpointing_, branch, x);
  }
  static Segment segment_of(torch::nn::Linear& branch) {
    return {[&branch](const at::Tensor& x) { return branch->forward(x); }, branch->parameters()};
  }

  const std::string unused_;
  const std::string first_;
  const int64_t out_;
  torch::nn::Linear trunk_, left_, right_;
  const std::string checkpointing_;  // of the branches
  const Segment run_left_ = segment_of(left_), run_right_ = segment_of(right_);
};

}  // namespace

std::unique_ptr<Model> build_branches(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<Branches>(options), dtype);
}

namespace {

c10::IValue dict_of(const at::Tensor& left, const at::Tensor& right) {
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("left", left);
  if (right.defined()) dict.insert("right", right);
  return dict;
}

std::vector<at::Tensor> list_of(const at::Tensor& left, const at::Tensor& right) {
  return right.defined() ? std::vector<at::Tensor>{left, right} : std::vector<at::Tensor>{left};
}

c10::IValue tuple_of(const std::vector<at::Tensor>& tensors) {
  return c10::ivalue::Tuple::create(std::vector<c10::IValue>(tensors.begin(), tensors.end()));
}

c10::IValue container_of(const std::string& kind, const at::Tensor& left, const at::Tensor& right) {
  if (kind == "list") return list_of(left, right);
  if (kind == "dict") return dict_of(left, right);
  if (kind == "tuple") return tuple_of(list_of(left, right));
  LOCKSTEP_CHECK(kind == "nested", "no container " + kind);
  c10::List<c10::IValue> nested(c10::AnyType::get());
  nested.push_back(tuple_of({left}));
  if (right.defined()) nested.push_back(dict_of(right, {}));
  return nested;
}

class TwoHeads : public torch::nn::Module {
 public:
  explicit TwoHeads(const Options& options)
      : trunk_(register_module(
            "trunk", torch::nn::Linear(options.integer("in_features"), options.integer("hidden")))),
        left_(register_module("left", head(options))),
        right_(register_module("right", head(options))) {}

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& input, bool both) {
    const at::Tensor x = at::tanh(trunk_->forward(as_rows(input)));
    const at::Tensor left = left_->forward(x);
    return {left, both ? right_->forward(x) : at::Tensor()};
  }

 private:
  static torch::nn::Linear head(const Options& options) {
    return torch::nn::Linear(options.integer("hidden"), options.integer("out_features"));
  }

  torch::nn::Linear trunk_, left_, right_;
};

class TwoHeadsModel : public ModuleModel {
 public:
  TwoHeadsModel(std::shared_ptr<TwoHeads> module, const Options& options)
      : ModuleModel(module),
        module_(std::move(module)),
        container_(options.text("container")),
        returns_both_(options.text("returned") == "both"),
        loss_takes_both_(options.text("in_loss") == "both") {}

  at::Tensor forward(const at::Tensor& input) override {
    const auto [left, right] = module_->forward(input, returns_both_);
    returned_ = container_ == "object" ? c10::IValue() : container_of(container_, left, right);
    return loss_takes_both_ ? left + right : left;
  }

  std::vector<at::Tensor> outputs(const at::Tensor&) const override {
    return tensors_in(returned_);
  }

 private:
  const std::shared_ptr<TwoHeads> module_;
  const std::string container_;
  const bool returns_both_, loss_takes_both_;
  c10::IValue returned_;  // by the last forward; none: what only the user could look into
};

class SizedLayer : public torch::nn::Module {
 public:
  explicit SizedLayer(int64_t size)
      : weight_(register_parameter("weight", at::randn({size, 1}).mul_(kSpread))) {}
  at::Tensor forward(const at::Tensor& x) const { return x * (1 + weight_.mean()); }

 private:
  static constexpr double kSpread = 0.02;
  const at::Tensor weight_;
};

class SizedLayers : public torch::nn::Module {
 public:
  explicit SizedLayers(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes)
      layers_.push_back(register_module("layer" + std::to_string(layers_.size() + 1),
                                        std::make_shared<SizedLayer>(size)));
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = as_rows(input);
    for (const auto& layer : layers_) x = layer->forward(x);
    return x;
  }

 private:
  std::vector<std::shared_ptr<SizedLayer>> layers_;
};

}  // namespace

std::unique_ptr<Model> build_sized_layers(const Options& options, const std::string& dtype) {
  return model_of(std::make_shared<SizedLayers>(options.integers("sizes")), dtype);
}

std::unique_ptr<Model> build_two_heads(const Options& options, const std::string& dtype) {
  auto module = std::make_shared<TwoHeads>(options);
  convert(*module, dtype);
  return std::make_unique<TwoHeadsModel>(std::move(module), options);
}

}  // namespace lockstep
