#include <ATen/ATen.h>

#include <cmath>

#include "scenarios/base/check.h"
#include "scenarios/workloads/dtype.h"
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

}  // namespace

Batch draw_data(const Part& part, const std::string& dtype) {
  const Options& options = part.options;
  const int64_t samples = options.integer("samples");
  const std::vector<int64_t> input = {samples, options.integer("features")};
  const std::vector<int64_t> target = {samples, options.integer("targets")};
  Batch data;
  if (part.kind == "randn") {
    data.input = at::randn(input, at::kFloat);
    data.target = at::randn(target, at::kFloat);
  } else if (part.kind == "dyadic") {
    const double low = options.number("low");
    const double high = options.number("high");
    data.input = on_grid(input, low, high, options.number("denominator"));
    data.target = on_grid(target, low, high, kTargetDenominator);
  } else {
    LOCKSTEP_CHECK(false, "no data set " + part.kind);
  }
  return {data.input.to(scalar_type(dtype)), data.target.to(scalar_type(dtype))};
}

Batch select(const Batch& data, const std::vector<int64_t>& indices) {
  const at::Tensor rows = at::tensor(indices, at::kLong);
  return {data.input.index_select(0, rows), data.target.index_select(0, rows)};
}

}  // namespace lockstep
