#include "scenarios/workloads/models.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>

#include "scenarios/base/error.h"
#include "scenarios/manifest.h"
#include "scenarios/workloads/draws.h"
#include "scenarios/workloads/layers.h"
#include "scenarios/workloads/registry.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

void collect(const c10::IValue& value, std::vector<at::Tensor>* found) {
  if (value.isTensor()) {
    found->push_back(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) collect(item, found);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) collect(item, found);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) collect(entry.value(), found);
  }
}

}  // namespace

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> found;
  collect(value, &found);
  return found;
}

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

namespace {

at::Tensor sliced(const at::Tensor& weights) {
  std::vector<int64_t> sizes = weights.sizes().vec();
  sizes.back() *= 2;
  const at::Tensor slice = at::zeros(sizes, weights.options()).narrow(-1, 0, weights.size(-1));
  return at::Tensor(slice).copy_(weights);
}

at::Tensor laid_out(const std::string& format, const at::Tensor& weights) {
  if (format == "channels_last")
    return weights.dim() == 4 ? weights.contiguous(at::MemoryFormat::ChannelsLast) : weights;
  if (format == "transposed") return weights.transpose(-2, -1).contiguous().transpose(-2, -1);
  LOCKSTEP_CHECK(format == "sliced", "no memory format " + format);
  return sliced(weights);
}

}  // namespace

std::string memory_format_of(const Options& model) {
  return model.has("memory_format") ? model.text("memory_format") : "contiguous";
}

void lay_out_weights(const std::string& format, const Model& model) {
  if (format == "contiguous") return;
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& parameter : model.parameters())
    if (parameter.tensor.dim() >= 2)
      at::Tensor(parameter.tensor).set_data(laid_out(format, parameter.tensor.detach()));
}

namespace {

class ScriptModel : public Model {
 public:
  explicit ScriptModel(torch::jit::Module module) : module_(std::move(module)) {}

  at::Tensor forward(const at::Tensor& input) override {
    // Else the first runs would be profiled and later ones rewritten: other arithmetic in step 3.
    torch::jit::setGraphExecutorOptimize(false);
    return module_.forward({input}).toTensor();
  }
  NamedTensors parameters() const override { return named(module_.named_parameters()); }
  NamedTensors buffers() const override { return named(module_.named_buffers()); }

 private:
  // A tensor that is registered twice is listed once, under its first name.
  template <class List>
  static NamedTensors named(const List& list) {
    NamedTensors result;
    for (const auto& item : list) {
      bool known = false;
      for (const NamedTensor& other : result) known = known || other.tensor.is_same(item.value);
      if (!known) result.push_back({item.name, item.value});
    }
    return result;
  }

  torch::jit::Module module_;
};

}  // namespace

std::unique_ptr<Model> build_torchscript(const Options& options, const std::string& dtype) {
  const std::string& file = options.text("file");
  torch::jit::Module module = torch::jit::load(file, c10::Device(c10::kCPU));
  auto model = std::make_unique<ScriptModel>(std::move(module));
  if (model->parameters().empty()) throw std::runtime_error(file + " holds no parameters");
  const c10::ScalarType type = scalar_type(dtype);
  const c10::NoGradGuard no_grad;
  for (const NamedTensors& tensors : {model->parameters(), model->buffers()})
    for (const NamedTensor& named : tensors)
      if (named.tensor.is_floating_point()) named.tensor.set_data(named.tensor.to(type));
  return model;
}

namespace {

// Parameters and buffers of a manifest, in its order, and nothing to compute with.
class DescribedModel : public Model {
 public:
  DescribedModel(const ModelManifest& manifest, const std::string& dtype) {
    constexpr double kSpread = 0.02;
    for (const TensorSpec& spec : manifest.parameters) {
      const at::Tensor weight = at::randn(spec.shape).mul_(kSpread).to(scalar_type(dtype));
      parameters_.push_back({spec.name, weight.requires_grad_(true)});
    }
    for (const TensorSpec& spec : manifest.buffers) {
      const at::ScalarType type = spec.dtype == "int64" ? at::kLong : scalar_type(dtype);
      const bool ones = spec.name.ends_with("running_var");
      buffers_.push_back(
          {spec.name, ones ? at::ones(spec.shape, type) : at::zeros(spec.shape, type)});
    }
  }
  at::Tensor forward(const at::Tensor&) override {
    check_failed("forward", __FILE__, __LINE__, "this model is only described");
  }
  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override { return buffers_; }

 private:
  NamedTensors parameters_, buffers_;
};

std::unique_ptr<Model> build_described(const Part& part, const std::string& dtype) {
  const auto manifest = manifest_of(part, dtype);
  LOCKSTEP_CHECK(manifest != nullptr, "no manifest of model " + part.kind);
  return std::make_unique<DescribedModel>(*manifest, dtype);
}

}  // namespace

std::unique_ptr<Model> build_model(const Part& part, const std::string& dtype) {
  using Build = std::unique_ptr<Model> (*)(const Options&, const std::string&);
  static const std::map<std::string_view, Build> kBuild = {
      {"linear", build_linear},
      {"mlp", build_mlp},
      {"autoencoder", build_autoencoder},
      {"batch_norm_mlp", build_batch_norm_mlp},
      {"branches", build_branches},
      {"two_heads", build_two_heads},
      {"sized_layers", build_sized_layers},
      {"mnist_convnet", build_mnist_convnet},
      {"cifar_cnn", build_cifar_cnn},
      {"resnet18", build_resnet18},
      {"resnet50", build_resnet50},
      {"embedding", build_embedding},
      {"gpt", build_gpt},
      {"torchscript", build_torchscript},
      {"registered", build_registered},
  };
  const auto found = kBuild.find(part.kind);
  const bool described = is_only_described(part.kind);
  LOCKSTEP_CHECK(described || found != kBuild.end(), "no model " + part.kind);
  std::unique_ptr<Model> model =
      described ? build_described(part, dtype) : found->second(part.options, dtype);
  lay_out_weights(memory_format_of(part.options), *model);
  return model;
}

}  // namespace lockstep
