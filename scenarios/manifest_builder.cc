#include "scenarios/manifest_builder.h"

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

std::string joined(const std::string& module, const char* tensor) {
  return module.empty() ? tensor : module + "." + tensor;
}

}  // namespace

void ManifestBuilder::parameter(const std::string& name, std::vector<int64_t> shape,
                                bool sparse_gradient) {
  manifest_.parameters.push_back({name, dtype_, std::move(shape), true, sparse_gradient});
}

void ManifestBuilder::linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  parameter(joined(name, "weight"), {out, in});
  if (bias) parameter(joined(name, "bias"), {out});
}

void ManifestBuilder::convolution(const std::string& name, int64_t in, int64_t out, int64_t kernel,
                                  bool bias) {
  parameter(joined(name, "weight"), {out, in, kernel, kernel});
  if (bias) parameter(joined(name, "bias"), {out});
}

void ManifestBuilder::norm(const std::string& name, int64_t channels, const std::string& kind) {
  parameter(joined(name, "weight"), {channels});
  parameter(joined(name, "bias"), {channels});
  if (kind == "group" || kind == "layer") return;
  const bool given = kind == "batch" || kind == "sync" || kind == "sync_equal";
  LOCKSTEP_CHECK(given || kind == "frozen", "no norm " + kind);
  manifest_.buffers.push_back({joined(name, "running_mean"), dtype_, {channels}});
  manifest_.buffers.push_back({joined(name, "running_var"), dtype_, {channels}});
  manifest_.buffers.push_back({joined(name, "num_batches_tracked"), "int64", {}});
  if (given) manifest_.batch_statistics = true;
}

void ManifestBuilder::shapes(std::vector<int64_t> input, std::vector<int64_t> output,
                             int64_t vocabulary) {
  manifest_.input = std::move(input);
  manifest_.output = std::move(output);
  manifest_.vocabulary = vocabulary;
}

}  // namespace lockstep
