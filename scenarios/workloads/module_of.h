#pragma once

#include <memory>
#include <string>

#include "scenarios/workloads/models.h"

namespace lockstep {

// Converts parameters and buffers of floating point; counters stay integers.
void convert(torch::nn::Module& module, const std::string& dtype);

// The Model of a torch::nn::Module class with a forward(const at::Tensor&).
template <class Module>
class ModelOf : public ModuleModel {
 public:
  explicit ModelOf(std::shared_ptr<Module> module)
      : ModuleModel(module), module_(std::move(module)) {}
  at::Tensor forward(const at::Tensor& input) override { return module_->forward(input); }

 private:
  std::shared_ptr<Module> module_;
};

template <class Module>
std::unique_ptr<Model> model_of(std::shared_ptr<Module> module, const std::string& dtype) {
  convert(*module, dtype);
  return std::make_unique<ModelOf<Module>>(std::move(module));
}

}  // namespace lockstep
