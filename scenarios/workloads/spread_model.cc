#include "scenarios/workloads/spread_model.h"

#include <ATen/ATen.h>

#include "scenarios/base/check.h"
#include "scenarios/devices.h"
#include "scenarios/workloads/layers.h"

namespace lockstep {
namespace {

class SpreadMlp : public Model {
 public:
  SpreadMlp(const std::vector<c10::Device>& devices, const Scenario& scenario, const Model& model)
      : activation_(activation_of(scenario.model.options.text("activation"))) {
    for (const NamedTensor& built : model.parameters()) {
      NamedTensor moved = built;
      moved.device = device_of(scenario, built.name);
      moved.tensor = built.tensor.detach().to(devices.at(static_cast<size_t>(moved.device)));
      moved.tensor.set_requires_grad(true);
      parameters_.push_back(std::move(moved));
    }
    bias_ = scenario.model.options.flag("bias");
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = as_rows(input);
    const size_t each = bias_ ? 2 : 1;
    for (size_t p = 0; p < parameters_.size(); p += each) {
      const at::Tensor& weight = parameters_[p].tensor;
      if (p > 0) x = activation_(x);
      x = at::linear(x.to(weight.device()), weight,
                     bias_ ? parameters_[p + 1].tensor : at::Tensor());
    }
    return x;
  }

  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override { return {}; }

 private:
  const Activation activation_;
  NamedTensors parameters_;
  bool bias_ = true;
};

}  // namespace

std::unique_ptr<Model> spread_over(const std::vector<c10::Device>& devices,
                                   const Scenario& scenario, const Model& model) {
  LOCKSTEP_CHECK(scenario.model.kind == "mlp", "a " + scenario.model.kind + " on several devices");
  return std::make_unique<SpreadMlp>(devices, scenario, model);
}

}  // namespace lockstep
