#include "scenarios/workloads/placed_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace lockstep {
namespace {

class PlacedModel : public Model {
 public:
  PlacedModel(c10::Device device, std::unique_ptr<Model> model)
      : device_(device), model_(std::move(model)) {
    const c10::NoGradGuard no_grad;
    for (const NamedTensors& tensors : {model_->parameters(), model_->buffers()})
      for (const NamedTensor& named : tensors)
        at::Tensor(named.tensor).set_data(named.tensor.detach().to(device_));
  }

  bool normalize_over(BatchGroup* group) override { return model_->normalize_over(group); }
  bool draw_from(SampleDraws* draws) override { return model_->draw_from(draws); }
  std::vector<std::string> undeclared_random_layers() const override {
    return model_->undeclared_random_layers();
  }
  bool run_by(ComputeClock* clock) override { return model_->run_by(clock); }
  at::Tensor forward(const at::Tensor& input) override {
    return model_->forward(input.to(device_));
  }
  std::vector<at::Tensor> outputs(const at::Tensor& returned) const override {
    return model_->outputs(returned);
  }
  NamedTensors parameters() const override { return model_->parameters(); }
  NamedTensors buffers() const override { return model_->buffers(); }

 private:
  const c10::Device device_;
  const std::unique_ptr<Model> model_;
};

}  // namespace

std::unique_ptr<Model> place_on(c10::Device device, std::unique_ptr<Model> model) {
  return std::make_unique<PlacedModel>(device, std::move(model));
}

}  // namespace lockstep
