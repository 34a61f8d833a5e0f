#include "scenarios/workloads/emulated.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <map>

#include "scenarios/base/error.h"
#include "scenarios/layer_times.h"
#include "scenarios/manifest.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kWeightShare = 1.0 / 64;  // of a weight, in a sample's number

// A gradient to be. Who takes it may keep its memory: see memory().
struct EmulatedGradient {
  at::Tensor pattern;
  at::Tensor kept;

  // Memory that nobody else holds, in a tensor that the receiver may keep as its own.
  at::Tensor memory() {
    if (!kept.defined() || kept.storage().use_count() > 1) kept = at::empty_like(pattern);
    return kept.detach();
  }
};

struct EmulatedLayer {
  size_t place = 0;
  ComputeClock* const* clock = nullptr;
  std::vector<at::Tensor> parameters;
  std::vector<EmulatedGradient> gradients;
};

// [samples] to [samples], with the layer's parameters as further inputs.
class RunLayer : public torch::autograd::Function<RunLayer> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& numbers,
                            at::TensorList parameters, EmulatedLayer* layer) {
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);  // an IValue holds no pointer
    at::Tensor result = numbers.clone();
    for (const at::Tensor& parameter : parameters)
      result.add_(parameter.view({-1})[0].to(numbers.scalar_type()), kWeightShare);
    if (*layer->clock != nullptr) (*layer->clock)->wait_forward(layer->place);
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& above) {
    auto& layer = *reinterpret_cast<EmulatedLayer*>(context->saved_data["layer"].toInt());
    ComputeClock* const clock = *layer.clock;
    variable_list below = {above[0]};
    const at::Tensor sum = above[0].sum();
    for (size_t i = 0; i < layer.parameters.size(); ++i) {
      at::Tensor& gradient = below.emplace_back();
      if (!layer.parameters[i].requires_grad()) continue;
      gradient = layer.gradients[i].memory();
      at::mul_out(gradient, layer.gradients[i].pattern, sum);
    }
    if (clock != nullptr) clock->wait_backward(layer.place);
    below.emplace_back();  // of the layer itself
    return below;
  }
};

// Numbers that any dtype holds exactly, of which neighbours differ: k / 4096, k from 1 to 251.
at::Tensor pattern_of(int64_t count, at::ScalarType type) {
  return at::arange(count, at::kLong).mul_(7919).remainder_(251).add_(1).to(type).div_(4096);
}

class EmulatedModel : public Model {
 public:
  EmulatedModel(std::unique_ptr<Model> real, const ModelManifest& manifest)
      : real_(std::move(real)),
        vocabulary_(manifest.vocabulary),
        output_shape_(manifest.output),
        parameters_(real_->parameters()) {
    LOCKSTEP_CHECK(parameters_.size() == manifest.parameters.size(), "a manifest of another model");
    find_patterns();
    for (const LayerSpec& spec : manifest.layers) {
      EmulatedLayer& layer = layers_.emplace_back();
      layer.place = layers_.size() - 1;
      layer.clock = &clock_;
      // Autograd hands gradients out in the order of the inputs; of a real layer the last
      // parameter, the bias, has its own first.
      for (auto p = spec.parameters.rbegin(); p != spec.parameters.rend(); ++p) {
        layer.parameters.push_back(parameters_[static_cast<size_t>(*p)].tensor);
        layer.gradients.push_back({pattern(static_cast<size_t>(*p)), {}});
      }
    }
  }

  bool run_by(ComputeClock* clock) override {
    clock_ = clock;
    if (clock_ != nullptr) touch_memory();
    return true;
  }

  at::Tensor forward(const at::Tensor& input) override {
    if (clock_ != nullptr) clock_->begin_forward(input.size(0));
    at::Tensor numbers = numbers_of(input);
    for (EmulatedLayer& layer : layers_)
      numbers = RunLayer::apply(numbers, at::TensorList(layer.parameters), &layer);
    std::vector<int64_t> shape = {input.size(0)};
    for (const int64_t size : output_shape_) shape.push_back(size < 0 ? input.size(1) : size);
    int64_t outputs = 1;
    for (size_t i = 1; i < shape.size(); ++i) outputs *= shape[i];
    if (row_.numel() != outputs) row_ = pattern_of(outputs, numbers.scalar_type()).mul_(16);
    return numbers.unsqueeze(1).mul(row_).view(shape);
  }

  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override { return real_->buffers(); }

 private:
  // One tile for each dtype; a parameter's pattern begins at its own place in it.
  void find_patterns() {
    int64_t longest = 0;
    for (const NamedTensor& parameter : parameters_)
      longest = std::max(longest, parameter.tensor.numel());
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& parameter : parameters_) {
      at::Tensor& tile = tiles_[parameter.tensor.scalar_type()];
      if (!tile.defined())
        tile = pattern_of(longest + static_cast<int64_t>(parameters_.size()),
                          parameter.tensor.scalar_type());
    }
  }

  // Else the first backward would be late by the time that the system takes to hand it out.
  void touch_memory() {
    for (EmulatedLayer& layer : layers_)
      for (size_t i = 0; i < layer.parameters.size(); ++i)
        if (layer.parameters[i].requires_grad()) layer.gradients[i].memory().fill_(0);
  }

  at::Tensor pattern(size_t parameter) const {
    const at::Tensor& tensor = parameters_[parameter].tensor;
    return tiles_.at(tensor.scalar_type())
        .narrow(0, static_cast<int64_t>(parameter), tensor.numel())
        .view(tensor.sizes());
  }

  // [samples]
  at::Tensor numbers_of(const at::Tensor& input) const {
    const at::Tensor rows = input.flatten(1);
    if (vocabulary_ == 0) return rows.mean(1);
    return rows.to(parameters_.front().tensor.scalar_type()).mean(1).div_(vocabulary_);
  }

  const std::unique_ptr<Model> real_;
  const int64_t vocabulary_;
  const std::vector<int64_t> output_shape_;
  const NamedTensors parameters_;
  ComputeClock* clock_ = nullptr;
  std::map<at::ScalarType, at::Tensor> tiles_;
  std::vector<EmulatedLayer> layers_;
  at::Tensor row_;
};

}  // namespace

std::unique_ptr<Model> build_emulated(const Scenario& scenario, const std::string& dtype) {
  const auto manifest = manifest_of(scenario.model, dtype);
  LOCKSTEP_CHECK(manifest != nullptr, "no emulation of model " + scenario.model.kind);
  return std::make_unique<EmulatedModel>(build_model(scenario.model, dtype), *manifest);
}

}  // namespace lockstep
