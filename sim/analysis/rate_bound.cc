#include "sim/analysis/rate_bound.h"

#include <cmath>

namespace lockstep {
namespace {

// P(X <= events) of `runs` trials with this rate.
double at_most(int64_t events, int64_t runs, double rate) {
  double sum = 0;
  for (int64_t k = 0; k <= events; ++k) {
    const auto n = static_cast<double>(runs), x = static_cast<double>(k);
    const double ways = std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1);
    sum += std::exp(ways + x * std::log(rate) + (n - x) * std::log1p(-rate));
  }
  return sum;
}

}  // namespace

double rate_bound_95(int64_t events, int64_t runs) {
  if (events >= runs) return 1;
  double low = 0, high = 1;
  for (int step = 0; step < 100; ++step) {
    const double middle = (low + high) / 2;
    (at_most(events, runs, middle) > 0.05 ? low : high) = middle;
  }
  return high;
}

}  // namespace lockstep
