#include "scenarios/workloads/script_model.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/serialization/import.h>

#include <stdexcept>

#include "scenarios/workloads/dtype.h"

namespace lockstep {
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

}  // namespace lockstep
