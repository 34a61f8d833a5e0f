#include "scenarios/workloads/image_data.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "scenarios/base/check.h"
#include "scenarios/files/image_files.h"

namespace lockstep {
namespace {

// One number for all channels or one for each, as a tensor that fits [samples, channels, ...].
at::Tensor by_channel(const Options& options, const std::string& key, int64_t channels) {
  const OptionValue& list = options.all().find(key)->second;
  std::vector<double> values;
  if (const auto* whole = std::get_if<std::vector<int64_t>>(&list))
    values.assign(whole->begin(), whole->end());
  else
    values = std::get<std::vector<double>>(list);
  const auto count = static_cast<int64_t>(values.size());
  LOCKSTEP_CHECK(count == 1 || count == channels, "the plan lets no other lists pass");
  return at::tensor(values, at::kDouble).to(at::kFloat).reshape({1, count, 1, 1});
}

at::Tensor bytes_as(const std::vector<uint8_t>& bytes, at::IntArrayRef sizes, at::ScalarType type) {
  const at::TensorOptions options(at::kByte);
  return at::from_blob(const_cast<uint8_t*>(bytes.data()), sizes, options).to(type);
}

}  // namespace

Batch image_data(const Part& part) {
  const int64_t samples = part.options.integer("samples");
  const auto loaded = load_images(part, samples);
  if (!loaded) throw std::runtime_error(to_text(loaded.errors()[0]));
  const ImageSet& images = loaded.value();
  const ImageShape& shape = images.shape;
  at::Tensor input =
      bytes_as(images.pixels, {samples, shape.channels, shape.height, shape.width}, at::kFloat);
  input.div_(255).sub_(by_channel(part.options, "mean", shape.channels));
  input.div_(by_channel(part.options, "std", shape.channels));
  if (part.options.text("target") == "input") return {input, input.flatten(1)};
  return {input, bytes_as(images.labels, {samples}, at::kLong)};
}

}  // namespace lockstep
