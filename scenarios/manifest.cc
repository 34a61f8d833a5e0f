#include "scenarios/manifest.h"

#include <map>
#include <string_view>

#include "scenarios/base/check.h"
#include "scenarios/manifest_builder.h"

namespace lockstep {
namespace {

using Describe = void (*)(const Options&, ManifestBuilder&);

const std::map<std::string_view, Describe>& models() {
  static const std::map<std::string_view, Describe> kModels = {
      {"linear", describe_linear},
      {"mlp", describe_mlp},
      {"autoencoder", describe_autoencoder},
      {"batch_norm_mlp", describe_batch_norm_mlp},
      {"branches", describe_branches},
      {"two_heads", describe_two_heads},
      {"mnist_convnet", describe_mnist_convnet},
      {"cifar_cnn", describe_cifar_cnn},
      {"resnet18", describe_resnet18},
      {"resnet50", describe_resnet50},
      {"embedding", describe_embedding},
      {"gpt", describe_gpt},
  };
  return kModels;
}

}  // namespace

int64_t TensorSpec::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

int64_t TensorSpec::bytes() const { return numel() * dtype_bytes(dtype); }

int64_t dtype_bytes(const std::string& dtype) {
  if (dtype == "bfloat16") return 2;
  if (dtype == "float32") return 4;
  if (dtype == "float64" || dtype == "int64") return 8;
  check_failed("dtype", __FILE__, __LINE__, "dtype " + dtype + " is not known");
}

std::optional<ModelManifest> manifest_of(const Part& model, const std::string& dtype,
                                         const std::vector<int64_t>& sample) {
  const auto found = models().find(model.kind);
  if (found == models().end()) return {};
  ManifestBuilder builder(model.kind, dtype, sample);
  found->second(model.options, builder);
  return builder.take();
}

}  // namespace lockstep
