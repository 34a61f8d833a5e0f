#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>

#include "scenarios/workloads/draws.h"
#include "scenarios/workloads/dtype.h"
#include "scenarios/workloads/module_of.h"
#include "scenarios/workloads/sync_batch_norm.h"

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

bool is_dropout(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  return module.as<nn::DropoutImpl>() != nullptr || module.as<nn::Dropout2dImpl>() != nullptr ||
         module.as<nn::Dropout3dImpl>() != nullptr ||
         module.as<nn::AlphaDropoutImpl>() != nullptr ||
         module.as<nn::FeatureAlphaDropoutImpl>() != nullptr;
}

}  // namespace

ModuleModel::ModuleModel(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {}
ModuleModel::~ModuleModel() = default;

// Which gradients are sparse only the layers know: as in DDP, an embedding that says so.
NamedTensors ModuleModel::parameters() const {
  NamedTensors parameters = named(module_->named_parameters());
  for (const auto& module : module_->modules()) {
    const auto* embedding = module->as<torch::nn::EmbeddingImpl>();
    if (embedding == nullptr || !embedding->options.sparse()) continue;
    for (NamedTensor& parameter : parameters)
      if (parameter.tensor.is_same(embedding->weight)) parameter.sparse_gradient = true;
  }
  return parameters;
}

bool ModuleModel::normalize_over(BatchGroup* group) {
  bool any = false;
  for (const auto& module : module_->modules()) {
    auto* norm = module->as<SyncBatchNormImpl>();
    if (norm == nullptr) continue;
    norm->use(group);
    any = true;
  }
  return any;
}

bool ModuleModel::draw_from(SampleDraws* draws) {
  bool any = false;
  for (const auto& module : module_->modules()) {
    auto* layer = dynamic_cast<RandomLayer*>(module.get());
    if (layer == nullptr) continue;
    layer->draw_from(draws);
    any = true;
  }
  return any;
}

std::vector<std::string> ModuleModel::undeclared_random_layers() const {
  std::vector<std::string> names;
  for (const auto& item : module_->named_modules())
    if (item.value()->is_training() && is_dropout(*item.value())) names.push_back(item.key());
  return names;
}

NamedTensors ModuleModel::buffers() const { return named(module_->named_buffers()); }

void convert(torch::nn::Module& module, const std::string& dtype) {
  const c10::ScalarType type = scalar_type(dtype);
  const c10::NoGradGuard no_grad;
  for (std::vector<at::Tensor> tensors : {module.parameters(), module.buffers()})
    for (at::Tensor& tensor : tensors)
      if (tensor.is_floating_point()) tensor.set_data(tensor.to(type));
}

}  // namespace lockstep
