#include <map>
#include <string_view>

#include "scenarios/base/check.h"
#include "scenarios/workloads/memory_format.h"
#include "scenarios/workloads/models.h"
#include "scenarios/workloads/registry.h"
#include "scenarios/workloads/script_model.h"

namespace lockstep {

std::unique_ptr<Model> build_model(const Part& part, const std::string& dtype) {
  using Build = std::unique_ptr<Model> (*)(const Options&, const std::string&);
  static const std::map<std::string_view, Build> kBuild = {
      {"linear", build_linear},
      {"mlp", build_mlp},
      {"autoencoder", build_autoencoder},
      {"batch_norm_mlp", build_batch_norm_mlp},
      {"branches", build_branches},
      {"two_heads", build_two_heads},
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
  LOCKSTEP_CHECK(found != kBuild.end(), "no model " + part.kind);
  std::unique_ptr<Model> model = found->second(part.options, dtype);
  lay_out_weights(memory_format_of(part.options), *model);
  return model;
}

}  // namespace lockstep
