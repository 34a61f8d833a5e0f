#include "scenarios/manifest_builder.h"

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

std::string joined(const std::string& module, const char* tensor) {
  return module.empty() ? tensor : module + "." + tensor;
}

}  // namespace

void ManifestBuilder::begin_with_pixels() {
  if (sample_.size() == 3) extent_ = {sample_[1], sample_[2]};
}

void ManifestBuilder::begin_with_tokens() {
  if (sample_.size() == 1) extent_ = {1, sample_[0]};
}

void ManifestBuilder::begin(const std::string& layer, int64_t macs, int64_t elements) {
  if (sample_.empty()) macs = elements = 0;
  manifest_.layers.push_back({layer.empty() ? model_ : layer, {}, macs, elements});
}

void ManifestBuilder::parameter(const std::string& layer, const char* name,
                                std::vector<int64_t> shape, bool sparse_gradient) {
  manifest_.layers.back().parameters.push_back(static_cast<int64_t>(manifest_.parameters.size()));
  manifest_.parameters.push_back(
      {joined(layer, name), dtype_, std::move(shape), true, sparse_gradient});
}

void ManifestBuilder::linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  begin(name, in * out * places(), 0);
  parameter(name, "weight", {out, in});
  if (bias) parameter(name, "bias", {out});
}

void ManifestBuilder::convolution(const std::string& name, int64_t in, int64_t out,
                                  const Window& window, bool bias) {
  pool(window);
  begin(name, in * out * window.size * window.size * places(), 0);
  parameter(name, "weight", {out, in, window.size, window.size});
  if (bias) parameter(name, "bias", {out});
}

void ManifestBuilder::embedding(const std::string& name, int64_t rows, int64_t width,
                                bool sparse_gradient) {
  begin(name, 0, width * places());
  parameter(name, "weight", {rows, width}, sparse_gradient);
}

void ManifestBuilder::work(const std::string& name, int64_t macs) { begin(name, macs, 0); }

// An image smaller than the window leaves nothing.
void ManifestBuilder::pool(const Window& window) {
  const auto moved = [&](int64_t side) {
    const int64_t room = side + 2 * window.padding - window.size;
    return room < 0 ? 0 : room / window.stride + 1;
  };
  extent_ = {moved(extent_.height), moved(extent_.width)};
}

void ManifestBuilder::norm(const std::string& name, int64_t channels, const std::string& kind) {
  begin(name, 0, channels * places());
  parameter(name, "weight", {channels});
  parameter(name, "bias", {channels});
  if (kind == "group" || kind == "layer") return;
  const bool given = kind == "batch" || kind == "sync" || kind == "sync_equal";
  LOCKSTEP_CHECK(given || kind == "frozen", "no norm " + kind);
  manifest_.buffers.push_back({joined(name, "running_mean"), dtype_, {channels}});
  manifest_.buffers.push_back({joined(name, "running_var"), dtype_, {channels}});
  manifest_.buffers.push_back({joined(name, "num_batches_tracked"), "int64", {}});
  if (given) manifest_.batch_statistics = true;
}

void ManifestBuilder::reverse_registration() {
  std::vector<TensorSpec> reversed;
  for (auto layer = manifest_.layers.rbegin(); layer != manifest_.layers.rend(); ++layer)
    for (int64_t& p : layer->parameters) {
      reversed.push_back(std::move(manifest_.parameters[static_cast<size_t>(p)]));
      p = static_cast<int64_t>(reversed.size()) - 1;
    }
  manifest_.parameters = std::move(reversed);
}

void ManifestBuilder::shapes(std::vector<int64_t> input, std::vector<int64_t> output,
                             int64_t vocabulary) {
  manifest_.input = std::move(input);
  manifest_.output = std::move(output);
  manifest_.vocabulary = vocabulary;
}

}  // namespace lockstep
