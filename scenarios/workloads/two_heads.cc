#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>
#include <torch/nn/modules/linear.h>

#include <utility>

#include "scenarios/base/check.h"
#include "scenarios/workloads/containers.h"
#include "scenarios/workloads/layers.h"
#include "scenarios/workloads/module_of.h"

namespace lockstep {
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

}  // namespace

std::unique_ptr<Model> build_two_heads(const Options& options, const std::string& dtype) {
  auto module = std::make_shared<TwoHeads>(options);
  convert(*module, dtype);
  return std::make_unique<TwoHeadsModel>(std::move(module), options);
}

}  // namespace lockstep
