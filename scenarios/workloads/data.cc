#include <ATen/ATen.h>

#include <cmath>

#include "scenarios/base/check.h"
#include "scenarios/files/image_files.h"
#include "scenarios/manifest.h"
#include "scenarios/workloads/dtype.h"
#include "scenarios/workloads/image_data.h"
#include "scenarios/workloads/registry.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

constexpr double kTargetDenominator = 64;

// Multiples of 1/denominator, uniform in [low, high].
at::Tensor on_grid(at::IntArrayRef sizes, double low, double high, double denominator) {
  const auto first = static_cast<int64_t>(std::ceil(low * denominator));
  const auto last = static_cast<int64_t>(std::floor(high * denominator));
  return at::randint(first, last + 1, sizes, at::kFloat).div_(denominator);
}

// Feature 0 is 1 in one block of samples, -1 in the next.
at::Tensor routed(const std::vector<int64_t>& sizes, int64_t block) {
  at::Tensor input = at::randn(sizes, at::kFloat);
  const at::Tensor blocks = at::arange(sizes[0], at::kLong).div(block, "floor").remainder(2);
  input.select(1, 0).copy_(1 - 2 * blocks);
  return input;
}

Batch tokens(int64_t samples, int64_t length, int64_t vocabulary) {
  const at::Tensor text = at::randint(vocabulary, {samples, length + 1}, at::kLong);
  return {text.narrow(1, 0, length).contiguous(), text.narrow(1, 1, length).contiguous()};
}

Batch draw(const Part& part, const std::vector<int64_t>& input,
           const std::vector<int64_t>& target) {
  const Options& options = part.options;
  if (part.kind == "dyadic") {
    const double low = options.number("low");
    const double high = options.number("high");
    const at::Tensor inputs = on_grid(input, low, high, options.number("denominator"));
    return {inputs, on_grid(target, low, high, kTargetDenominator)};
  }
  if (is_image_file_kind(part.kind)) return image_data(part);
  if (part.kind == "tokens") return tokens(input[0], input[1], options.integer("vocabulary"));
  const at::Tensor inputs = part.kind == "routed" ? routed(input, options.integer("block"))
                                                  : at::randn(input, at::kFloat);
  if (part.kind == "randn" || part.kind == "routed") return {inputs, at::randn(target, at::kFloat)};
  LOCKSTEP_CHECK(part.kind == "classes" || part.kind == "images", "no data set " + part.kind);
  if (options.has("target") && options.text("target") == "input")
    return {inputs, inputs.flatten(1)};
  return {inputs, at::randint(options.integer("classes"), target, at::kLong)};
}

Batch draw_float32(const Part& part) {
  if (part.kind == "registered") return draw_registered(part);
  const SampleSpec spec = sample_spec(part, "float32");
  const auto sizes = [&](std::vector<int64_t> shape) {
    shape.insert(shape.begin(), part.options.integer("samples"));
    return shape;
  };
  return draw(part, sizes(spec.input_shape), sizes(spec.target_shape));
}

}  // namespace

Batch draw_data(const Part& part, const std::string& dtype) {
  const Batch data = draw_float32(part);
  const auto in_dtype = [&](const at::Tensor& values) {
    return values.is_floating_point() ? values.to(scalar_type(dtype)) : values;
  };
  return {in_dtype(data.input), in_dtype(data.target)};
}

SampleSpec sample_spec(const Part& part, const std::string& dtype) {
  const auto shape = data_shape(part);
  LOCKSTEP_CHECK(shape, "no data set " + part.kind);
  const c10::ScalarType numbers = scalar_type(dtype);
  return {shape->input, shape->target, shape->vocabulary > 0 ? at::kLong : numbers,
          shape->classes > 0 ? at::kLong : numbers};
}

std::vector<int64_t> samples_in(const Batch& batch, int64_t first, int64_t count) {
  if (batch.samples.empty()) return {};
  const auto begin = batch.samples.begin() + first;
  return {begin, begin + count};
}

std::vector<Batch> micro_batches(const Batch& shard, int64_t count) {
  const int64_t samples = shard.input.size(0);
  LOCKSTEP_CHECK(count > 0 && samples % count == 0, "the plan lets only equal micro-batches pass");
  if (count == 1) return {shard};
  std::vector<Batch> parts;
  for (int64_t first = 0; first < samples; first += samples / count)
    parts.push_back({shard.input.narrow(0, first, samples / count).clone(),
                     shard.target.narrow(0, first, samples / count).clone(),
                     samples_in(shard, first, samples / count)});
  return parts;
}

Batch select(const Batch& data, const std::vector<int64_t>& indices) {
  const at::Tensor rows = at::tensor(indices, at::kLong);
  return {data.input.index_select(0, rows), data.target.index_select(0, rows), indices};
}

}  // namespace lockstep
