#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// What a sweep concludes from repeated measurements. All of it is the same for the same values and
// seed, on every machine: resampling draws from numbers that a counter addresses.

// A median with a bootstrap percentile interval: (1 - confidence) / 2 of all resampled medians lie
// below `low`, as many above `high`. Of n values no interval says more than 1 - 2^(1 - n).
struct Estimate {
  double value = 0, low = 0, high = 0;
};

inline constexpr double kConfidence = 0.95;
inline constexpr int64_t kResamples = 2000;

// Values must not be empty.
Estimate bootstrap_median(const std::vector<double>& values, double confidence, uint64_t seed);
// A mean with an interval of resampled means.
Estimate bootstrap_mean(const std::vector<double>& values, double confidence, uint64_t seed);
// Of after[i] / before[i], for measurements that were made beside each other: what disturbed both
// alike divides out. As many of each, none of them 0.
Estimate bootstrap_paired_ratio(const std::vector<double>& after, const std::vector<double>& before,
                                double confidence, uint64_t seed);
// Of median(after) / median(before), for measurements that have nothing to do with each other.
Estimate bootstrap_ratio(const std::vector<double>& after, const std::vector<double>& before,
                         double confidence, uint64_t seed);

// The least number of pairs with which one of `comparisons` can be told from chance at
// kConfidence: were nothing different, all n would lie on the same side once in 2^n.
int64_t least_rounds(int64_t comparisons);

// Places of values further from the median than 3.5 standard deviations, these by the median
// absolute deviation (times 1.4826, as of a normal distribution). Nothing of fewer than 5 values.
// Deviations below 0.1 % of the median are none: timers of a quiet machine scatter less than that.
std::vector<size_t> outliers(const std::vector<double>& values);

// Pearson's. 0 where one of both does not vary; as many of each.
double correlation(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace lockstep
