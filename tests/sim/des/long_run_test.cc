#include "sim/des/long_run.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000, kHour = 3600 * kSecond;

// Llama 3: 16,384 GPUs, an unexpected interruption every 3.09 hours ("The Llama 3 herd of models",
// 2024: 419 in 54 days), here of 2,048 hosts with 8 each.
LongRun llama() {
  LongRun run;
  run.work_ns = 54 * 24 * kHour;
  run.hosts = 2048;
  run.mtbf_ns = 2048 * (kHour / 100 * 309);
  run.checkpoint_ns = 60 * kSecond;
  run.restart_ns = 600 * kSecond;
  run.interval_ns = best_interval_ns(run);
  run.seed = 7;
  return run;
}

TEST(LongRun, TakesAsLongAsTheFormulaSays) {
  for (const int64_t interval_s : {300, 1200, 3600, 14'400})
    for (const int64_t restart_s : {0, 600, 7200}) {
      LongRun run = llama();
      run.interval_ns = interval_s * kSecond;
      run.restart_ns = restart_s * kSecond;
      ASSERT_TRUE(problems_of(run).empty());
      const LongRunNumbers numbers = simulate_long_run(run, 1000, 0);
      const double error = (numbers.high_ns - numbers.low_ns) / (2 * 1.96);
      EXPECT_NEAR(numbers.elapsed_ns, expected_ns(run), 4 * error)
          << interval_s << " " << restart_s;
      EXPECT_LT(4 * error, 0.02 * numbers.elapsed_ns);
      EXPECT_NEAR(numbers.elapsed_ns,
                  static_cast<double>(run.work_ns) + numbers.lost_ns + numbers.checkpoints_ns +
                      numbers.restarts_ns,
                  1e-9 * numbers.elapsed_ns);
    }
}

TEST(LongRun, FailuresComeAtTheirRate) {
  const LongRun run = llama();
  const LongRunNumbers numbers = simulate_long_run(run, 1000, 0);
  EXPECT_NEAR(numbers.failures, numbers.elapsed_ns / (3.09 * static_cast<double>(kHour)),
              0.02 * numbers.failures);
}

// Young's sqrt(2 x checkpoint x mtbf) is the first term; no other interval is expected to be
// shorter by more than the terms that are left out.
TEST(LongRun, AnIntervalThatNoWorkFillsIsNoCheckpoint) {
  LongRun run;
  run.work_ns = 3'600'000'000'000;
  run.mtbf_ns = 36'000'000'000'000;
  run.interval_ns = 3'600'000'000'000'000;
  EXPECT_TRUE(problems_of(run).empty());
  EXPECT_NEAR(expected_ns(run), run.mtbf_ns * (std::exp(0.1) - 1), 1e6);
}

TEST(LongRun, TheBestIntervalIsDalys) {
  LongRun run = llama();
  const double young = std::sqrt(2 * 60.0 * 3.09 * 3600) * static_cast<double>(kSecond);
  EXPECT_NEAR(static_cast<double>(run.interval_ns), young, 0.05 * young);
  const double best = expected_ns(run);
  for (int64_t interval_s = 60; interval_s < 20'000; interval_s += 60) {
    run.interval_ns = interval_s * kSecond;
    EXPECT_GE(expected_ns(run), best * (1 - 1e-4)) << interval_s;
  }
}

TEST(LongRun, WithoutFailuresOnlyCheckpointsAreAdded) {
  LongRun run;
  run.work_ns = 10 * kHour;
  run.mtbf_ns = int64_t{1} << 60;
  run.checkpoint_ns = 60 * kSecond;
  run.interval_ns = kHour;
  const LongRunNumbers numbers = simulate_long_run(run, 100, 1);
  EXPECT_EQ(numbers.failures, 0);
  EXPECT_EQ(numbers.elapsed_ns, static_cast<double>(10 * kHour + 9 * 60 * kSecond));
}

TEST(LongRun, IsTheSameOnAnyNumberOfThreads) {
  const LongRun run = llama();
  const LongRunNumbers alone = simulate_long_run(run, 97, 1);
  for (const int64_t threads : {2, 3, 7}) {
    const LongRunNumbers many = simulate_long_run(run, 97, threads);
    EXPECT_EQ(many.elapsed_ns, alone.elapsed_ns);
    EXPECT_EQ(many.lost_ns, alone.lost_ns);
    EXPECT_EQ(many.failures, alone.failures);
  }
  LongRun other = run;
  other.seed = 8;
  EXPECT_NE(simulate_long_run(other, 97, 1).elapsed_ns, alone.elapsed_ns);
}

TEST(LongRun, WhatWouldNeverEndIsRefused) {
  LongRun run = llama();
  run.interval_ns = 1000 * kHour;
  ASSERT_EQ(problems_of(run).size(), 1u);
  EXPECT_EQ(to_text(problems_of(run)[0]).find("lockstep: error: a failure every 1.11e+04 s"), 0u);
  run = llama();
  run.mtbf_ns = 0;
  run.restart_ns = -1;
  EXPECT_EQ(problems_of(run).size(), 2u);
}

}  // namespace
}  // namespace lockstep
