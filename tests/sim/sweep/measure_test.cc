#include <gmock/gmock.h>

#include "sim/sweep/measure.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

RunResult measured(const MadeRun& run) {
  RunResult result;
  result.intervals = timeline_of(run.make());
  result.metrics = metrics_of(*result.intervals);
  return result;
}

TEST(Measure, MediansOfTheStepsAfterTheWarmUp) {
  for (const int64_t world_size : {2, 3, 7}) {
    MadeRun run;
    run.world_size = world_size;
    run.steps = 11;
    // Slow while it warms up, and once more later: medians do not see it.
    run.slower = [](int64_t, int64_t step, Phase phase) {
      const bool slow = phase == Phase::forward && (step <= 4 || step == 9);
      return MadeRun::Slower{1, slow ? 500.0 : 0};
    };
    const auto numbers = numbers_of(measured(run), 4);
    ASSERT_TRUE(numbers);
    EXPECT_EQ(numbers->steps, 7);
    EXPECT_EQ(numbers->outlier_steps, 1);
    EXPECT_EQ(numbers->buckets, run.buckets);
    EXPECT_GT(numbers->tail_mb, 0);
    EXPECT_GE(numbers->backward_ms, run.backward_ms);
    EXPECT_GE(numbers->step_ms, numbers->backward_ms + run.forward_ms);
    EXPECT_LT(numbers->step_ms, 100);
    EXPECT_GE(numbers->exposed_ms, 0);
  }
}

TEST(Measure, NothingWhereNoStepCounts) {
  MadeRun run;
  run.steps = 5;
  EXPECT_FALSE(numbers_of(measured(run), 5));
  EXPECT_FALSE(numbers_of(RunResult(), 1)) << "no metrics";
}

}  // namespace

}  // namespace lockstep
