#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "sim/tools/whatif/forecast.h"
#include "tests/sim/analysis/growth.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

Forecast forecast(const MadeRun& run, const std::vector<size_t>& fixed = {}) {
  return forecast_of(replayed_steps_of(timeline_of(run.make())), fixed, 1).value();
}

MadeRun run_of(int64_t world_size) {
  MadeRun run;
  run.world_size = world_size;
  run.jitter = 0.02;
  run.optimizer_ms = 0;  // so that ranks begin their steps nearly together
  return run;
}

// The same run with the lateness never put in: what a prediction has to come to.
TEST(Forecast, ComesToTheRunWithoutTheStraggler) {
  for (const int64_t world_size : {2, 3, 6, 7}) {
    MadeRun run = run_of(world_size);
    const double without_ms = forecast(run).measured.mean_ms.value;
    run.slower = [](int64_t rank, int64_t, Phase phase) {
      return MadeRun::Slower{rank == 1 && phase == Phase::backward ? 1.5 : 1, 0};
    };
    const Forecast found = forecast(run);
    EXPECT_EQ(found.steps, 19u);
    EXPECT_EQ(found.predictions.size(), static_cast<size_t>(world_size));
    const Prediction& first = found.predictions[0];
    EXPECT_THAT(first.ranks, ElementsAre(1));
    EXPECT_NEAR(first.step.mean_ms.value, without_ms, 0.02 * without_ms);
    EXPECT_LE(first.step.mean_ms.low, first.step.mean_ms.value);
    EXPECT_GE(first.step.mean_ms.high, first.step.mean_ms.value);
    EXPECT_NEAR(first.saving.mean_ms.value, 10, 1);
    ASSERT_FALSE(first.parts.empty());
    EXPECT_EQ(first.parts[0].phase, "backward");
    EXPECT_NEAR(first.parts[0].cost_ms, 10, 1);
    EXPECT_FALSE(replay_is_off(found));
    for (size_t i = 1; i < found.predictions.size(); ++i)
      EXPECT_LT(found.predictions[i].saving.mean_ms.value, 1);
  }
}

// A median would not see it.
TEST(Forecast, APauseInSomeStepsCountsInTheMean) {
  MadeRun run = run_of(3);
  run.slower = [](int64_t rank, int64_t step, Phase phase) {
    return MadeRun::Slower{1, rank == 2 && step % 5 == 0 && phase == Phase::load ? 100.0 : 0};
  };
  const Prediction first = forecast(run).predictions[0];
  EXPECT_THAT(first.ranks, ElementsAre(2));
  EXPECT_NEAR(first.saving.mean_ms.value, 100.0 * 4 / 19, 1);
  EXPECT_LT(first.saving.median_ms, 1);
  EXPECT_EQ(first.parts[0].phase, "load");
}

// Each rank in turn is asked for in another way than some ranks together.
TEST(Forecast, EachRankInTurnIsThatRankAlone) {
  MadeRun run = run_of(5);
  run.jitter = 0.3;
  run.launched = true;
  run.delay_ms = [](int64_t rank, int64_t step) { return rank == step % 5 ? 6.0 : 0; };
  for (const Prediction& one : forecast(run).predictions) {
    const Prediction alone = forecast(run, one.ranks).predictions[0];
    EXPECT_NEAR(one.step.mean_ms.value, alone.step.mean_ms.value, 1e-6);
    EXPECT_NEAR(one.saving.median_ms, alone.saving.median_ms, 1e-6);
    ASSERT_EQ(one.parts.size(), alone.parts.size());
    for (size_t i = 0; i < one.parts.size(); ++i) {
      EXPECT_EQ(one.parts[i].phase, alone.parts[i].phase);
      EXPECT_NEAR(one.parts[i].cost_ms, alone.parts[i].cost_ms, 1e-6);
    }
  }
}

TEST(Forecast, TimeGrowsWithTheRanksNotWithTheirSquare) {
  const auto work = [](int64_t ranks) {
    MadeRun run = run_of(ranks);
    run.steps = 4;
    return [steps = replayed_steps_of(timeline_of(run.make()))] { forecast_of(steps, {}, 1); };
  };
  EXPECT_LT(growth_of(work, 150, 7), 7);
}

TEST(Forecast, SeveralRanksTogether) {
  MadeRun run = run_of(6);
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return MadeRun::Slower{1, (rank == 0 || rank == 4) && phase == Phase::forward ? 8.0 : 0};
  };
  for (const Prediction& one : forecast(run).predictions)
    EXPECT_LT(one.saving.mean_ms.value, 1);  // the other one is as late
  const Forecast both = forecast(run, {0, 4});
  ASSERT_EQ(both.predictions.size(), 1u);
  EXPECT_THAT(both.predictions[0].ranks, ElementsAre(0, 4));
  EXPECT_NEAR(both.predictions[0].saving.mean_ms.value, 8, 1);
}

TEST(Forecast, ASlowLinkIsAPartOfItsOwn) {
  MadeRun run = run_of(3);
  run.launched = true;
  run.delay_ms = [](int64_t rank, int64_t) { return rank == 1 ? 6.0 : 0; };
  const Prediction first = forecast(run).predictions[0];
  EXPECT_THAT(first.ranks, ElementsAre(1));
  ASSERT_FALSE(first.parts.empty());
  EXPECT_EQ(first.parts[0].phase, "link");
}

TEST(Forecast, NothingFromOneRankOrNoStep) {
  EXPECT_FALSE(forecast_of(replayed_steps_of(timeline_of(run_of(1).make())), {}, 1));
  MadeRun run = run_of(3);
  run.steps = 1;  // it warms up
  EXPECT_FALSE(forecast_of(replayed_steps_of(timeline_of(run.make())), {}, 1));
}

}  // namespace

}  // namespace lockstep
