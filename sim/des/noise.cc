#include "sim/des/noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

#include "scenarios/base/number.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<Distribution, const char*>, 5> kNoiseWords = {
    {{Distribution::none, "none"},
     {Distribution::normal, "normal"},
     {Distribution::uniform, "uniform"},
     {Distribution::lognormal, "lognormal"},
     {Distribution::exponential, "exponential"}}};

// A factor of 2^20 is a stall, not noise; beyond it nothing would be left of the nanoseconds.
constexpr double kMostFactor = 1 << 20;

double polynomial(std::initializer_list<double> coefficients, double x) {
  double sum = 0;
  for (const double coefficient : coefficients) sum = sum * x + coefficient;
  return sum;
}

double first_guess(double u) {
  if (u < 0.02425) {
    const double q = std::sqrt(-2 * std::log(u));
    return polynomial({-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                       -2.549732539343734e+00, 4.374664141464968e+00, 2.938163982698783e+00},
                      q) /
           polynomial({7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                       3.754408661907416e+00, 1},
                      q);
  }
  const double q = u - 0.5, r = q * q;
  return q *
         polynomial({-3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02,
                     1.383577518672690e+02, -3.066479806614716e+01, 2.506628277459239e+00},
                    r) /
         polynomial({-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                     6.680131188771972e+01, -1.328068155288572e+01, 1},
                    r);
}

double factor_of(const Noise& noise, double u) {
  switch (noise.distribution) {
    case Distribution::none:
      return 1;
    case Distribution::normal:
      return 1 + noise.spread * normal_quantile(u);
    case Distribution::uniform:
      return 1 + noise.spread * (2 * u - 1);
    case Distribution::lognormal:
      return std::exp(noise.spread * normal_quantile(u));
    case Distribution::exponential:
      return 1 - noise.spread * std::log1p(-u);
  }
  check_failed("distribution", __FILE__, __LINE__, "no such distribution");
}

InputError refused_noise(const std::string& words, const std::string& why) {
  return option_error(
      fmt::format("noise \"{}\": {}", words, why),
      fmt::format("none, or normal, uniform, lognormal or exponential with a spread of 0 to {}, as "
                  "normal:0.02; with \",bucket\" a draw for each bucket",
                  kMostSpread));
}

}  // namespace

const char* to_word(Distribution distribution) {
  for (const auto& [known, word] : kNoiseWords)
    if (known == distribution) return word;
  check_failed("distribution", __FILE__, __LINE__, "no such distribution");
}

Expected<Noise> noise_of(const std::string& words) {
  Noise noise;
  std::string rest = words;
  if (const size_t comma = rest.find(','); comma != std::string::npos) {
    if (rest.substr(comma) != ",bucket")
      return refused_noise(words, "after the comma stands no \"bucket\"");
    noise.per_bucket = true;
    rest.resize(comma);
  }
  const size_t colon = rest.find(':');
  const std::string name = rest.substr(0, colon);
  const auto known = std::find_if(kNoiseWords.begin(), kNoiseWords.end(),
                                  [&](const auto& entry) { return entry.second == name; });
  if (known == kNoiseWords.end()) return refused_noise(words, "no such distribution");
  noise.distribution = known->first;
  if (noise.distribution == Distribution::none) {
    if (colon != std::string::npos) return refused_noise(words, "none has no spread");
    if (noise.per_bucket) return refused_noise(words, "none draws nothing");
    return noise;
  }
  if (colon == std::string::npos) return refused_noise(words, "without a spread");
  const auto spread = number_in<double>(std::string_view(rest).substr(colon + 1));
  if (!spread) return refused_noise(words, "the spread is no number");
  noise.spread = *spread;
  if (!(noise.spread >= 0 && noise.spread <= kMostSpread))
    return refused_noise(words, "the spread is out of range");
  return noise;
}

double normal_quantile(double u) {
  if (u > 0.5) return -normal_quantile(1 - u);  // where erfc() has its digits
  const double z = first_guess(u);
  const double error = 0.5 * std::erfc(-z / std::numbers::sqrt2) - u;
  const double step = error * std::sqrt(2 * std::numbers::pi) * std::exp(z * z / 2);
  return z - step / (1 + z * step / 2);
}

int64_t factor_at(const Noise& noise, double u) {
  const double factor = std::clamp(factor_of(noise, u), 0.0, kMostFactor);
  return std::llround(factor * static_cast<double>(kOne));
}

}  // namespace lockstep
