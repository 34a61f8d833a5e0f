#pragma once

#include <cstdint>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// By how much a rank's compute differs from step to step: a factor, drawn anew at each place.

enum class Distribution { none, normal, uniform, lognormal, exponential };
const char* to_word(Distribution distribution);

struct Noise {
  Distribution distribution = Distribution::none;
  // normal: standard deviation, lognormal: that of the logarithm, uniform: 1 - spread to
  // 1 + spread, exponential: 1 + spread x Exp(1). >= 0, at most kMostSpread.
  double spread = 0;
  // Each gradient bucket is late by a draw of its own, instead of the rank by one for all.
  bool per_bucket = false;
  bool any() const { return distribution != Distribution::none && spread > 0; }
  bool operator==(const Noise&) const = default;
};
inline constexpr double kMostSpread = 10;

// "normal:0.02", "lognormal:0.1,bucket"; "none". Bad input: the words, or a spread out of range.
Expected<Noise> noise_of(const std::string& words);

// Times are multiplied by these, 2^kFactorBits being 1.
inline constexpr int kFactorBits = 24;
inline constexpr int64_t kOne = int64_t{1} << kFactorBits;

// The quantile at u in (0, 1): never falls as u rises, never below 0. So the largest factor of many
// ranks is that of their largest u, and need not be looked for one by one.
int64_t factor_at(const Noise& noise, double u);

// ns x factor, rounded down.
constexpr int64_t scaled(int64_t ns, int64_t factor) {
  return static_cast<int64_t>((static_cast<__int128>(ns) * factor) >> kFactorBits);
}

// Quantile of the standard normal distribution (Acklam's rational approximation, one step of
// Halley's method): relative error below 1e-14.
double normal_quantile(double u);

}  // namespace lockstep
