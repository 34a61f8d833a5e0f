#include "sim/sweep/statistics.h"

#include <algorithm>
#include <cmath>

#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"
#include "sim/analysis/step_model.h"

namespace lockstep {
namespace {

// Numbers in the order in which they are asked for.
class Draw {
 public:
  Draw(uint64_t seed, const char* what) : seed_(substream_seed(seed, what)) {}
  std::vector<double> resample(const std::vector<double>& values) {
    std::vector<double> drawn(values.size());
    for (double& value : drawn) value = values[next() % values.size()];
    return drawn;
  }

 private:
  uint64_t next() {
    ++counter_;
    return hash64(&counter_, sizeof counter_, seed_);
  }
  const uint64_t seed_;
  uint64_t counter_ = 0;
};

// The percentile interval of statistics that were resampled; sorts them.
Estimate interval(double value, double confidence, std::vector<double> resampled) {
  std::sort(resampled.begin(), resampled.end());
  const auto last = static_cast<double>(resampled.size() - 1);
  const double tail = (1 - confidence) / 2;
  return {value, resampled[static_cast<size_t>(std::floor(tail * last))],
          resampled[static_cast<size_t>(std::ceil((1 - tail) * last))]};
}

}  // namespace

Estimate bootstrap_median(const std::vector<double>& values, double confidence, uint64_t seed) {
  LOCKSTEP_CHECK(!values.empty(), "a median of nothing");
  Draw draw(seed, "bootstrap");
  std::vector<double> medians(kResamples);
  for (double& median : medians) median = median_of(draw.resample(values));
  return interval(median_of(values), confidence, std::move(medians));
}

Estimate bootstrap_mean(const std::vector<double>& values, double confidence, uint64_t seed) {
  LOCKSTEP_CHECK(!values.empty(), "a mean of nothing");
  Draw draw(seed, "bootstrap");
  std::vector<double> means(kResamples);
  for (double& mean : means) mean = mean_of(draw.resample(values));
  return interval(mean_of(values), confidence, std::move(means));
}

Estimate bootstrap_paired_ratio(const std::vector<double>& after, const std::vector<double>& before,
                                double confidence, uint64_t seed) {
  LOCKSTEP_CHECK(after.size() == before.size(), "pairs");
  std::vector<double> ratios(after.size());
  std::transform(after.begin(), after.end(), before.begin(), ratios.begin(), std::divides<>());
  return bootstrap_median(ratios, confidence, seed);
}

Estimate bootstrap_ratio(const std::vector<double>& after, const std::vector<double>& before,
                         double confidence, uint64_t seed) {
  LOCKSTEP_CHECK(!after.empty() && !before.empty(), "a ratio of nothing");
  Draw draw(seed, "bootstrap");
  std::vector<double> ratios(kResamples);
  for (double& ratio : ratios)
    ratio = median_of(draw.resample(after)) / median_of(draw.resample(before));
  return interval(median_of(after) / median_of(before), confidence, std::move(ratios));
}

int64_t least_rounds(int64_t comparisons) {
  const double chance = (1 - kConfidence) / static_cast<double>(std::max<int64_t>(1, comparisons));
  return static_cast<int64_t>(std::ceil(std::log2(2 / chance)));
}

std::vector<size_t> outliers(const std::vector<double>& values) {
  constexpr double kFar = 3.5, kNormal = 1.4826, kLeastShare = 0.001;
  constexpr size_t kLeastCount = 5;
  if (values.size() < kLeastCount) return {};
  const double middle = median_of(values);
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::fabs(value - middle));
  const double scale =
      std::max(kNormal * median_of(deviations), kLeastShare * std::fabs(middle) / kFar);
  std::vector<size_t> places;
  for (size_t i = 0; i < values.size(); ++i)
    if (deviations[i] > kFar * scale) places.push_back(i);
  return places;
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  LOCKSTEP_CHECK(x.size() == y.size() && !x.empty(), "pairs");
  const double x_mean = mean_of(x), y_mean = mean_of(y);
  double both = 0, x_square = 0, y_square = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    both += (x[i] - x_mean) * (y[i] - y_mean);
    x_square += (x[i] - x_mean) * (x[i] - x_mean);
    y_square += (y[i] - y_mean) * (y[i] - y_mean);
  }
  return x_square > 0 && y_square > 0 ? both / std::sqrt(x_square * y_square) : 0;
}

}  // namespace lockstep
