#include "scenarios/manifest.h"

#include <fmt/format.h>

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

void add_layer(const std::string& prefix, int64_t in, int64_t out, bool bias,
               const std::string& dtype, ModelManifest* manifest) {
  manifest->parameters.push_back({prefix + "weight", dtype, {out, in}});
  if (bias) manifest->parameters.push_back({prefix + "bias", dtype, {out}});
}

ModelManifest mlp(const Options& options, const std::string& dtype) {
  ModelManifest manifest;
  std::vector<int64_t> widths = options.integers("hidden");
  widths.push_back(options.integer("out_features"));
  int64_t in = options.integer("in_features");
  for (size_t i = 0; i < widths.size(); ++i) {
    add_layer(fmt::format("fc{}.", i + 1), in, widths[i], options.flag("bias"), dtype, &manifest);
    in = widths[i];
  }
  return manifest;
}

}  // namespace

int64_t TensorSpec::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

int64_t TensorSpec::bytes() const { return numel() * dtype_bytes(dtype); }

int64_t dtype_bytes(const std::string& dtype) {
  if (dtype == "float32") return 4;
  if (dtype == "float64" || dtype == "int64") return 8;
  check_failed("dtype", __FILE__, __LINE__, "dtype " + dtype + " is not known");
}

std::optional<ModelManifest> manifest_of(const Part& model, const std::string& dtype) {
  const Options& options = model.options;
  if (model.kind == "mlp") return mlp(options, dtype);
  if (model.kind != "linear") return {};
  ModelManifest manifest;
  add_layer("", options.integer("in_features"), options.integer("out_features"),
            options.flag("bias"), dtype, &manifest);
  return manifest;
}

}  // namespace lockstep
