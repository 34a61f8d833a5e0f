#include <fmt/format.h>

#include "scenarios/manifest_builder.h"

namespace lockstep {

void describe_embedding(const Options& options, ManifestBuilder& builder) {
  const int64_t vocabulary = options.integer("vocabulary");
  const int64_t width = options.integer("width");
  builder.begin_with_tokens();
  builder.embedding("embedding", vocabulary, width, options.flag("sparse"));
  builder.linear("fc", width, vocabulary);
  builder.shapes({-1}, {-1, vocabulary}, vocabulary);
}

// The output head has no tensor of its own: it is the token embedding.
void describe_gpt(const Options& options, ManifestBuilder& builder) {
  const int64_t vocabulary = options.integer("vocabulary");
  const int64_t context = options.integer("context");
  const int64_t width = options.integer("width");
  builder.begin_with_tokens();
  const int64_t length = builder.places();
  builder.embedding("tokens", vocabulary, width);
  builder.embedding("positions", context, width);
  for (int64_t i = 1; i <= options.integer("layers"); ++i) {
    const std::string block = fmt::format("block{}.", i);
    builder.norm(block + "norm1", width, "layer");
    builder.linear(block + "attention.qkv", width, 3 * width);
    builder.work(block + "attention", 2 * length * length * width);
    builder.linear(block + "attention.out", width, width);
    builder.norm(block + "norm2", width, "layer");
    builder.linear(block + "fc1", width, 4 * width);
    builder.linear(block + "fc2", 4 * width, width);
  }
  builder.norm("norm", width, "layer");
  builder.work("head", length * width * vocabulary);
  builder.shapes({context}, {context, vocabulary}, vocabulary);
}

}  // namespace lockstep
