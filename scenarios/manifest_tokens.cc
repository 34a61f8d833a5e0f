#include <fmt/format.h>

#include "scenarios/manifest_builder.h"

namespace lockstep {

void describe_embedding(const Options& options, ManifestBuilder& builder) {
  const int64_t vocabulary = options.integer("vocabulary");
  const int64_t width = options.integer("width");
  builder.parameter("embedding.weight", {vocabulary, width}, options.flag("sparse"));
  builder.linear("fc", width, vocabulary);
  builder.shapes({-1}, {-1, vocabulary}, vocabulary);
}

// The output head has no tensor of its own: it is the token embedding.
void describe_gpt(const Options& options, ManifestBuilder& builder) {
  const int64_t vocabulary = options.integer("vocabulary");
  const int64_t context = options.integer("context");
  const int64_t width = options.integer("width");
  builder.parameter("tokens.weight", {vocabulary, width});
  builder.parameter("positions.weight", {context, width});
  for (int64_t i = 1; i <= options.integer("layers"); ++i) {
    const std::string block = fmt::format("block{}.", i);
    builder.norm(block + "norm1", width, "layer");
    builder.linear(block + "attention.qkv", width, 3 * width);
    builder.linear(block + "attention.out", width, width);
    builder.norm(block + "norm2", width, "layer");
    builder.linear(block + "fc1", width, 4 * width);
    builder.linear(block + "fc2", 4 * width, width);
  }
  builder.norm("norm", width, "layer");
  builder.shapes({context}, {context, vocabulary}, vocabulary);
}

}  // namespace lockstep
