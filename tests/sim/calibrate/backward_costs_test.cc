#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "sim/calibrate/backward_costs.h"
#include "sim/calibrate/fit.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Five steps of a backward of so many buckets, each of 300 us, over compute of 40 ms that is 1.25
// times as long where it overlaps.
std::vector<BackwardSample> made_backwards(int64_t buckets, double overlapped_ns,
                                           const char* compute = "a model", double base_ns = 4e7) {
  std::vector<BackwardSample> samples;
  for (const double scatter : {-2e4, 0.0, 0.0, 1e4, 3e4})
    samples.push_back({compute, buckets,
                       base_ns + scatter + 3e5 * static_cast<double>(buckets) + 0.2 * overlapped_ns,
                       overlapped_ns});
  return samples;
}

std::vector<BackwardSample> operator+(std::vector<BackwardSample> a,
                                      const std::vector<BackwardSample>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(BackwardCosts, OfABucketFollowFromTwoCaps) {
  const auto costs = backward_costs(made_backwards(2, 0) + made_backwards(35, 0));
  ASSERT_TRUE(costs.bucket_us.number) << costs.bucket_us.unknown;
  EXPECT_NEAR(costs.bucket_us.number->value, 300, 0.1);
  EXPECT_LE(costs.bucket_us.number->low, 300);
  EXPECT_GE(costs.bucket_us.number->high, 300);
  EXPECT_FALSE(costs.overlap_slowdown.number);
  EXPECT_NEAR(bare_backward_ns(made_backwards(7, 0)[1], costs), 4e7, 1e3);
}

// Each compute has a base of its own, and the costs are those of all.
TEST(BackwardCosts, OfOverlapFollowFromFourCaps) {
  const auto samples = made_backwards(2, 2e7) + made_backwards(7, 9e6) + made_backwards(16, 1.4e7) +
                       made_backwards(35, 1e7) + made_backwards(5, 3e6, "another", 9e7) +
                       made_backwards(9, 0, "another", 9e7);
  const auto costs = backward_costs(samples);
  ASSERT_TRUE(costs.bucket_us.number) << costs.bucket_us.unknown;
  ASSERT_TRUE(costs.overlap_slowdown.number) << costs.overlap_slowdown.unknown;
  EXPECT_NEAR(costs.bucket_us.number->value, 300, 1);
  EXPECT_NEAR(costs.overlap_slowdown.number->value, 0.25, 0.002);
  EXPECT_NEAR(bare_backward_ns(made_backwards(3, 1e7, "another", 9e7)[1], costs), 9e7, 2e4);
}

TEST(BackwardCosts, WhatRunsDoNotShowIsUnknown) {
  EXPECT_THAT(backward_costs({}).bucket_us.unknown, HasSubstr("real compute"));
  const auto one = backward_costs(made_backwards(4, 1e6) + made_backwards(4, 1e6, "another"));
  EXPECT_THAT(one.bucket_us.unknown, HasSubstr("several caps"));
  EXPECT_FALSE(one.overlap_slowdown.number);
  auto noisy = made_backwards(4, 0);
  for (BackwardSample& sample : noisy) sample.ns -= 3e5;  // as of three buckets
  const auto zero = backward_costs(made_backwards(3, 0) + noisy);
  EXPECT_FALSE(zero.bucket_us.number);
  EXPECT_THAT(zero.bucket_us.unknown, HasSubstr("do not tell it from 0"));
  EXPECT_EQ(bare_backward_ns(noisy[0], zero), noisy[0].ns);
}

TEST(BackwardCosts, AreInTheMachineAndOutOfItsBackward) {
  RunSamples run;
  run.run = "made";
  for (const int64_t bytes : {1000, 9'000'000}) run.collectives.push_back({2, bytes, 1e6});
  run.backwards = made_backwards(2, 0) + made_backwards(35, 0);
  for (const BackwardSample& sample : run.backwards) run.backward_ns.push_back(sample.ns);
  const auto fit = fit_machine({run}, 2);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(static_cast<double>(fit.value().machine.bucket_ns), 3e5, 100);
  EXPECT_NEAR(*fit.value().machine.backward_ms, 40, 0.02);
  EXPECT_EQ(fit.value().machine.overlap_slowdown, 0);
  const auto json = as_json(fit.value());
  EXPECT_NEAR(json["bucket_us"]["value"].get<double>(), 300, 0.1);
  EXPECT_THAT(json["overlap_slowdown"]["unknown"].get<std::string>(), HasSubstr("four"));
}

TEST(LeastSquares, RefusesWhatItCannotTellApart) {
  EXPECT_FALSE(least_squares({{1, 2}, {2, 4}, {3, 6}}, {1, 2, 3}));
  EXPECT_FALSE(least_squares({{1, 2}}, {1}));
  EXPECT_FALSE(least_squares({}, {}));
  const auto x = least_squares({{1, 2e9}, {2, -1e9}, {4, 1e9}}, {7, 4, 9 + 1e-9});
  ASSERT_TRUE(x);
  EXPECT_NEAR((*x)[0] + (*x)[1] * 2e9, 7, 2);
}

}  // namespace
}  // namespace lockstep
