#include "sim/sweep/statistics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<double> drawn(std::mt19937_64* random, size_t count, double median) {
  std::lognormal_distribution<double> noise(0, 0.05);
  std::vector<double> values(count);
  for (double& value : values) value = median * noise(*random);
  return values;
}

TEST(Statistics, TheSameValuesAndSeedGiveTheSameInterval) {
  const std::vector<double> values = {5, 1, 4, 2, 3, 9, 7};
  const Estimate a = bootstrap_median(values, 0.95, 7), b = bootstrap_median(values, 0.95, 7);
  EXPECT_EQ(a.value, 4);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_LE(a.low, a.value);
  EXPECT_GE(a.high, a.value);
}

TEST(Statistics, OneValueIsItsOwnInterval) {
  const Estimate one = bootstrap_median({3}, 0.95, 1);
  EXPECT_EQ(one.low, 3);
  EXPECT_EQ(one.high, 3);
}

TEST(Statistics, AMeanSeesWhatAMedianDoesNot) {
  const std::vector<double> values = {1, 1, 1, 1, 1, 1, 1, 1, 1, 101};
  EXPECT_EQ(bootstrap_median(values, 0.95, 1).value, 1);
  const Estimate mean = bootstrap_mean(values, 0.95, 1);
  EXPECT_EQ(mean.value, 11);
  EXPECT_EQ(mean.low, 1);
  EXPECT_EQ(mean.high, 31);
}

// Of 95 % intervals of a skewed distribution, about 95 % hold the true median.
TEST(Statistics, IntervalsCoverTheMedian) {
  std::mt19937_64 random(5);
  for (const size_t count : {9u, 25u}) {
    int covered = 0;
    constexpr int kTrials = 300;
    for (int trial = 0; trial < kTrials; ++trial) {
      const Estimate e =
          bootstrap_median(drawn(&random, count, 100), 0.95, static_cast<uint64_t>(trial));
      covered += e.low <= 100 && 100 <= e.high;
    }
    EXPECT_GE(covered, kTrials * 0.90) << count;
    EXPECT_LE(covered, kTrials * 0.995) << count;
  }
}

TEST(Statistics, MoreConfidenceIsAWiderInterval) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 20; ++trial) {
    const auto values = drawn(&random, 12, 50);
    const Estimate narrow = bootstrap_median(values, 0.8, 3);
    const Estimate wide = bootstrap_median(values, 0.99, 3);
    EXPECT_LE(wide.low, narrow.low);
    EXPECT_GE(wide.high, narrow.high);
  }
}

// What disturbs both of a pair alike divides out.
TEST(Statistics, PairsAreTighterThanSeparateSamples) {
  std::mt19937_64 random(7);
  std::vector<double> before, after;
  std::uniform_real_distribution<double> load(1, 3);
  for (int i = 0; i < 10; ++i) {
    const double factor = load(random);
    before.push_back(100 * factor);
    after.push_back(98 * factor);
  }
  const Estimate paired = bootstrap_paired_ratio(after, before, 0.95, 1);
  EXPECT_NEAR(paired.value, 0.98, 1e-12);
  EXPECT_LT(paired.high, 0.9801);
  const Estimate apart = bootstrap_ratio(after, before, 0.95, 1);
  EXPECT_GT(apart.high, 1);
}

TEST(Statistics, ScalingScales) {
  std::mt19937_64 random(8);
  const auto values = drawn(&random, 11, 10);
  std::vector<double> doubled = values;
  for (double& value : doubled) value *= 2;
  const Estimate one = bootstrap_median(values, 0.95, 4), two = bootstrap_median(doubled, 0.95, 4);
  EXPECT_DOUBLE_EQ(two.value, 2 * one.value);
  EXPECT_DOUBLE_EQ(two.low, 2 * one.low);
  EXPECT_DOUBLE_EQ(two.high, 2 * one.high);
}

TEST(Statistics, RoundsThatAreNeeded) {
  EXPECT_EQ(least_rounds(1), 6);  // 2 / 2^6 = 3 %
  EXPECT_EQ(least_rounds(8), 9);  // 2 x 8 / 2^9 = 3 %
  for (int64_t n = 1; n < 40; ++n)
    EXPECT_LE(2.0 * static_cast<double>(n) / std::pow(2, least_rounds(n)), 0.05);
}

TEST(Statistics, OutliersByMedianAbsoluteDeviation) {
  EXPECT_THAT(outliers({10, 10.1, 9.9, 10.2, 30, 9.8}), ElementsAre(4));
  EXPECT_THAT(outliers({10, 11, 9, 12, 8, 10}), IsEmpty());
  EXPECT_THAT(outliers({1, 100}), IsEmpty()) << "too few to tell";
  EXPECT_THAT(outliers({10, 10, 10, 10, 10.005}), IsEmpty()) << "within a thousandth";
  EXPECT_THAT(outliers({10, 10, 10, 10, 11}), ElementsAre(4));
}

TEST(Statistics, Correlation) {
  EXPECT_DOUBLE_EQ(correlation({1, 2, 3}, {2, 4, 6}), 1);
  EXPECT_DOUBLE_EQ(correlation({1, 2, 3}, {3, 2, 1}), -1);
  EXPECT_EQ(correlation({1, 1, 1}, {3, 2, 1}), 0);
}

}  // namespace
}  // namespace lockstep
