#include "sim/report/svg/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"

namespace lockstep::svg {
namespace {

constexpr double kLargest = 1e15;
// What differs by less has no room for ticks among the digits of a double.
constexpr double kLeastSpan = 1e-9;
// What is less is drawn as 0: powers of ten end at 1e308.
constexpr double kLeastSize = 1e-100;

// multiple * 10^exponent
struct Spacing {
  int64_t multiple;
  int exponent;

  double of(int64_t count) const {
    const double power = std::pow(10.0, std::abs(exponent));
    const auto units = static_cast<double>(count * multiple);
    return exponent < 0 ? units / power : units * power;
  }
  // How many times it the axis' ends are from 0.
  int64_t first(double low) const { return std::llround(std::floor(low / of(1))); }
  int64_t last(double high) const { return std::llround(std::ceil(high / of(1))); }
};

Spacing next(Spacing spacing) {
  if (spacing.multiple == 1) return {2, spacing.exponent};
  if (spacing.multiple == 2) return {5, spacing.exponent};
  return {1, spacing.exponent + 1};
}

// With the digits that tell a tick from its neighbour.
std::string label_of(double value, const Spacing& spacing) {
  if (value == 0) return "0";
  const int digits = std::max(0, -spacing.exponent);
  if (digits > 6 || std::fabs(value) >= 1e9) {
    const int magnitude = static_cast<int>(std::floor(std::log10(std::fabs(value))));
    return fmt::format("{:.{}g}", value, std::clamp(magnitude - spacing.exponent + 1, 1, 17));
  }
  if (digits == 0 && std::fabs(value) >= 1000) return grouped(std::llround(value));
  return fmt::format("{:.{}f}", value, digits);
}

void widen(double* low, double* high) {
  const double size = std::max(std::fabs(*low), std::fabs(*high));
  const bool nothing = size < kLeastSize;
  if (!nothing && *high - *low > size * kLeastSpan) return;
  *low -= nothing ? 0 : size * 0.05;
  *high += nothing ? 1 : size * 0.05;
}

}  // namespace

Ticks linear_ticks(double low, double high, int most) {
  LOCKSTEP_CHECK(std::fabs(low) <= kLargest && std::fabs(high) <= kLargest && low <= high,
                 fmt::format("no axis goes from {} to {}", low, high));
  LOCKSTEP_CHECK(most >= 4, "too few ticks are allowed");
  widen(&low, &high);
  Spacing spacing{1, static_cast<int>(std::floor(std::log10((high - low) / most))) - 1};
  while (spacing.last(high) - spacing.first(low) + 1 > most) spacing = next(spacing);
  Ticks ticks;
  for (int64_t i = spacing.first(low); i <= spacing.last(high); ++i) {
    ticks.at.push_back(spacing.of(i));
    ticks.labels.push_back(label_of(ticks.at.back(), spacing));
  }
  return ticks;
}

Ticks log2_ticks(double low, double high, int most) {
  LOCKSTEP_CHECK(low > 0 && low <= high && std::isfinite(high),
                 fmt::format("no logarithmic axis goes from {} to {}", low, high));
  LOCKSTEP_CHECK(most >= 4, "too few ticks are allowed");
  int first = static_cast<int>(std::floor(std::log2(low)));
  int last = static_cast<int>(std::ceil(std::log2(high)));
  if (first == last) {
    --first;
    ++last;
  }
  const int stride = std::max(1, (last - first + most - 2) / (most - 1));
  last += (stride - (last - first) % stride) % stride;
  Ticks ticks;
  for (int power = first; power <= last; power += stride) {
    ticks.at.push_back(std::ldexp(1.0, power));
    const double value = ticks.at.back();
    const bool whole = value >= 1 && value < 1e9;
    ticks.labels.push_back(whole ? grouped(std::llround(value)) : fmt::format("{:.3g}", value));
  }
  return ticks;
}

Mapping::Mapping(Scale scale, double low, double high, double from_px, double to_px)
    : scale_(scale), low_(low), high_(high), from_px_(from_px), to_px_(to_px) {
  if (scale == Scale::log2) {
    LOCKSTEP_CHECK(low > 0, "a logarithmic axis begins above 0");
    low_ = std::log2(low);
    high_ = std::log2(high);
  }
  LOCKSTEP_CHECK(low_ < high_, "an axis has a length");
}

double Mapping::operator()(double value) const {
  LOCKSTEP_CHECK(scale_ == Scale::linear || value > 0, "a logarithmic axis shows what is above 0");
  const double place = scale_ == Scale::log2 ? std::log2(value) : value;
  return from_px_ + (place - low_) / (high_ - low_) * (to_px_ - from_px_);
}

}  // namespace lockstep::svg
