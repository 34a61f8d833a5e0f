#include <fmt/format.h>

#include <algorithm>

#include "scenarios/manifest_builder.h"
#include "scenarios/optional_keys.h"

namespace lockstep {
namespace {

std::vector<int64_t> widths_of(const Options& options) {
  std::vector<int64_t> widths = options.integers("hidden");
  widths.insert(widths.begin(), options.integer("in_features"));
  widths.push_back(options.integer("out_features"));
  return widths;
}

}  // namespace

void describe_linear(const Options& options, ManifestBuilder& builder) {
  const int64_t in = options.integer("in_features");
  const int64_t out = options.integer("out_features");
  builder.linear("", in, out, options.flag("bias"));
  builder.shapes({in}, {out});
}

void describe_mlp(const Options& options, ManifestBuilder& builder) {
  const std::vector<int64_t> widths = widths_of(options);
  std::vector<int64_t> wide;
  if (options.has("float64_layers")) wide = options.integers("float64_layers");
  for (size_t i = 1; i < widths.size(); ++i) {
    const std::string own = builder.use_dtype("float64");
    const bool is_wide = std::find(wide.begin(), wide.end(), static_cast<int64_t>(i)) != wide.end();
    if (!is_wide) builder.use_dtype(own);
    builder.linear(fmt::format("fc{}", i), widths[i - 1], widths[i], options.flag("bias"));
    builder.use_dtype(own);
  }
  if (registers_backwards(options)) builder.reverse_registration();
  builder.shapes({widths.front()}, {widths.back()});
}

void describe_autoencoder(const Options& options, ManifestBuilder& builder) {
  const int64_t features = options.integer("features");
  const int64_t hidden = options.integer("hidden");
  builder.linear("fc1", features, hidden);
  builder.linear("fc2", hidden, hidden);
  builder.linear("fc3", hidden, hidden);
  builder.linear("fc4", hidden, features);
  builder.shapes({features}, {features});
}

void describe_batch_norm_mlp(const Options& options, ManifestBuilder& builder) {
  const std::vector<int64_t> widths = widths_of(options);
  for (size_t i = 1; i < widths.size(); ++i) {
    builder.linear(fmt::format("fc{}", i), widths[i - 1], widths[i]);
    if (i + 1 < widths.size())
      builder.norm(fmt::format("bn{}", i), widths[i], options.text("norm"));
  }
  builder.shapes({widths.front()}, {widths.back()});
}

void describe_branches(const Options& options, ManifestBuilder& builder) {
  const int64_t in = options.integer("in_features");
  const int64_t hidden = options.integer("hidden");
  const int64_t out = options.integer("out_features");
  builder.linear("trunk", in, hidden);
  builder.linear("left", hidden, out);
  builder.linear("right", hidden, out);
  builder.shapes({in}, {out});
}

void describe_two_heads(const Options& options, ManifestBuilder& builder) {
  describe_branches(options, builder);
}

}  // namespace lockstep
