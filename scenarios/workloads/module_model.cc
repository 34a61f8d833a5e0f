#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "scenarios/workloads/dtype.h"
#include "scenarios/workloads/module_of.h"

namespace lockstep {
namespace {

template <class Dict>
NamedTensors named(const Dict& dict) {
  NamedTensors result;
  for (const auto& item : dict) {
    const auto same = [&](const NamedTensor& other) { return other.tensor.is_same(item.value()); };
    if (std::none_of(result.begin(), result.end(), same))
      result.push_back({item.key(), item.value()});
  }
  return result;
}

}  // namespace

ModuleModel::ModuleModel(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {}
ModuleModel::~ModuleModel() = default;
NamedTensors ModuleModel::parameters() const { return named(module_->named_parameters()); }
NamedTensors ModuleModel::buffers() const { return named(module_->named_buffers()); }

void convert(torch::nn::Module& module, const std::string& dtype) {
  const c10::ScalarType type = scalar_type(dtype);
  const c10::NoGradGuard no_grad;
  for (std::vector<at::Tensor> tensors : {module.parameters(), module.buffers()})
    for (at::Tensor& tensor : tensors)
      if (tensor.is_floating_point()) tensor.set_data(tensor.to(type));
}

}  // namespace lockstep
