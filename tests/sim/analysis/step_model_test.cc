#include <gmock/gmock.h>

#include "sim/analysis/step_model.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

std::vector<StepModel> models(const MadeRun& run) {
  const Timeline timeline = timeline_of(run.make());
  std::vector<StepModel> all;
  for (const Step& step : timeline.steps) all.push_back(model_of(timeline, step).value());
  return all;
}

// One rank's way through a step, by hand.
struct ByHand {
  RunOutcome outcome;
  explicit ByHand(int64_t world_size) {
    outcome.plan.scenario.world_size = world_size;
    outcome.ranks.resize(static_cast<size_t>(world_size));
  }
  void add(size_t rank, int64_t time_ns, EventKind kind, Phase phase, uint32_t sequence = 0,
           int32_t bucket = -1) {
    outcome.ranks[rank].events.push_back({time_ns, sequence, static_cast<uint16_t>(kind),
                                          static_cast<uint16_t>(phase), 1, bucket, 0});
  }
  StepModel model() const {
    const Timeline timeline = timeline_of(outcome);
    return model_of(timeline, timeline.steps.at(0)).value();
  }
};

TEST(WhatIf, GivesBackTheRecordedStep) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MadeRun run;
    run.seed = seed;
    run.jitter = 0.3;
    run.steps = 3;
    run.launched = seed % 2 == 0;
    run.world_size = std::vector<int64_t>{2, 3, 6, 7}[seed % 4];
    run.delay_ms = [](int64_t rank, int64_t) { return static_cast<double>(rank); };
    run.optimizer_ms = 0;  // so that ranks begin their steps nearly together
    const Timeline timeline = timeline_of(run.make());
    for (const Step& step : timeline.steps) {
      int64_t first = INT64_MAX, last_begin = 0, last = 0;
      for (const RankStep& rank : step.ranks) {
        first = std::min(first, rank.time.begin_ns);
        last_begin = std::max(last_begin, rank.time.begin_ns);
        last = std::max(last, rank.time.end_ns);
      }
      const double model = model_of(timeline, step)->step_ns();
      EXPECT_GE(model, static_cast<double>(last - last_begin) - 10);
      EXPECT_LE(model, static_cast<double>(last - first) + 10);
    }
  }
}

TEST(WhatIf, EqualRanksAreIdeal) {
  MadeRun run;
  for (const StepModel& model : models(run)) {
    EXPECT_NEAR(model.step_ns(), 32e6, 10);
    EXPECT_NEAR(model.ideal().step_ns(), 32e6, 10);
    EXPECT_NEAR(model.without(2).step_ns(), 32e6, 10);
    EXPECT_NEAR(model.only_ns()[2], 32e6, 10);
    EXPECT_NEAR(model.work_ns(1), 32e6, 10);
    EXPECT_NEAR(model.work_ns(1, Phase::backward), 20e6, 10);
  }
}

// Backward of rank 0 takes 20 ms longer: of 7 ranks the mean has 20/7 ms of it.
TEST(WhatIf, ReplacesWorkByItsMean) {
  MadeRun run;
  run.world_size = 7;
  run.buckets = 1;
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return MadeRun::Slower{1, rank == 0 && phase == Phase::backward ? 20.0 : 0};
  };
  for (const StepModel& model : models(run)) {
    EXPECT_NEAR(model.step_ns(), 52e6, 10);
    EXPECT_NEAR(model.ideal().step_ns(), 32e6 + 20e6 / 7, 10);
    EXPECT_NEAR(model.only_ns()[0], 52e6, 10);
    EXPECT_NEAR(model.without(0).step_ns(), 32e6, 10);
    EXPECT_NEAR(model.without(1).step_ns(), 52e6, 10);
  }
}

// The other late rank is none of those whose mean is taken.
TEST(WhatIf, SeveralRanksAreReplacedTogether) {
  MadeRun run;
  run.world_size = 6;
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return MadeRun::Slower{1, rank >= 4 && phase == Phase::backward ? 20.0 : 0};
  };
  for (const StepModel& model : models(run)) {
    EXPECT_NEAR(model.without({4, 5}).step_ns(), 32e6, 10);
    EXPECT_NEAR(model.without(4).step_ns(), 52e6, 10);
    EXPECT_NEAR(model.without({0, 1, 2, 3, 4, 5}).step_ns(), model.step_ns(), 10);
  }
}

TEST(WhatIf, ReplacesDelaysByTheirMedian) {
  MadeRun run;
  run.world_size = 3;
  run.buckets = 1;
  run.launched = true;
  run.transfer_ms = 10;
  run.delay_ms = [](int64_t rank, int64_t) { return rank == 2 ? 30 : 0; };
  // Backward: 20 ms, the bucket is ready after 20 / 1.5; 40 ms later it is there.
  const double ready = 11e6 + 20e6 / 1.5;
  for (const StepModel& model : models(run)) {
    EXPECT_NEAR(model.step_ns(), ready + 40e6 + 1e6, 10);
    EXPECT_NEAR(model.delay_ns(2), 30e6, 10);
    EXPECT_NEAR(model.delay_ns(1), 0, 10);
    EXPECT_NEAR(model.without(2).step_ns(), ready + 10e6 + 1e6, 10);
    EXPECT_NEAR(model.ideal().step_ns(), ready + 10e6 + 1e6, 10);
    EXPECT_NEAR(model.only_ns()[2], ready + 40e6 + 1e6, 10);
  }
}

// A broadcast before forward: rank 1 waits for rank 0's slow load, which is not its own work.
TEST(WhatIf, WaitingIsNoWork) {
  ByHand run(2);
  for (size_t rank : {0u, 1u}) {
    const int64_t load = rank == 0 ? 500 : 100;
    run.add(rank, 0, EventKind::phase_begin, Phase::load);
    run.add(rank, load, EventKind::phase_begin, Phase::forward);
    run.add(rank, load + 10, EventKind::arrival, Phase::forward, 1);
    run.add(rank, 530, EventKind::end, Phase::forward, 1);
    run.add(rank, 630, EventKind::phase_begin, Phase::optimizer);
    run.add(rank, 650, EventKind::step_end, Phase::optimizer);
  }
  const StepModel model = run.model();
  EXPECT_DOUBLE_EQ(model.work_ns(0, Phase::forward), 110);
  EXPECT_DOUBLE_EQ(model.work_ns(1, Phase::forward), 110);
  EXPECT_DOUBLE_EQ(model.work_ns(1), 230);
  EXPECT_DOUBLE_EQ(model.step_ns(), 650);
  EXPECT_DOUBLE_EQ(model.without(0).step_ns(), 250);
  EXPECT_DOUBLE_EQ(model.ideal().step_ns(), 450);
}

// Two collectives in backward: that of a bucket goes on beside it, the other one is waited for.
TEST(WhatIf, InBackwardOnlyBucketsAreNotWaitedFor) {
  ByHand run(2);
  for (size_t rank : {0u, 1u}) {
    run.add(rank, 0, EventKind::phase_begin, Phase::backward);
    run.add(rank, 100, EventKind::arrival, Phase::backward, 1, 0);
    run.add(rank, 150, EventKind::end, Phase::backward, 1, 0);
    run.add(rank, 200, EventKind::arrival, Phase::backward, 2);
    run.add(rank, 260, EventKind::end, Phase::backward, 2);
    run.add(rank, 300, EventKind::phase_begin, Phase::wait);
    run.add(rank, 310, EventKind::step_end, Phase::wait);
  }
  const StepModel model = run.model();
  EXPECT_DOUBLE_EQ(model.work_ns(0), 250);
  EXPECT_DOUBLE_EQ(model.step_ns(), 310);
}

TEST(WhatIf, RanksThatWentOtherWaysCannotBeCompared) {
  ByHand run(2);
  for (size_t rank : {0u, 1u}) {
    run.add(rank, 0, EventKind::phase_begin, Phase::load);
    run.add(rank, 10, EventKind::phase_begin, rank == 0 ? Phase::forward : Phase::wait);
    run.add(rank, 20, EventKind::step_end, Phase::wait);
  }
  const Timeline timeline = timeline_of(run.outcome);
  EXPECT_FALSE(model_of(timeline, timeline.steps.at(0)));
}

TEST(WhatIf, MedianIsTheMiddle) {
  EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median_of({4, 1, 2, 9}), 3);
  EXPECT_DOUBLE_EQ(mean_of({4, 1, 2, 9}), 4);
}

}  // namespace

}  // namespace lockstep
