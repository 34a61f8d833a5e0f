#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "sim/analysis/metrics.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

Collective collective(const std::vector<int64_t>& arrivals, const std::vector<int64_t>& ends) {
  Collective made;
  for (size_t rank = 0; rank < arrivals.size(); ++rank) {
    Passage& passage = made.ranks.emplace_back();
    passage.arrival_ns = arrivals[rank];
    passage.end_ns = ends[rank];
  }
  return made;
}

TEST(Metrics, OfACollectiveByHand) {
  const Collective two = collective({10, 25}, {40, 41});
  EXPECT_EQ(skew_ns(two), 15);
  EXPECT_EQ(wait_ns(two, 0), 15);
  EXPECT_EQ(wait_ns(two, 1), 0);
  EXPECT_EQ(transfer_ns(two, 1), 16);
  EXPECT_EQ(latest_of(two).rank, 1u);
  EXPECT_EQ(latest_of(two).gap_ns, 15);

  const Collective three = collective({30, 10, 24}, {50, 51, 52});
  EXPECT_EQ(skew_ns(three), 20);
  EXPECT_EQ(wait_ns(three, 1), 20);
  EXPECT_EQ(latest_of(three).rank, 0u);
  EXPECT_EQ(latest_of(three).gap_ns, 6);

  const Collective six = collective({1, 7, 3, 7, 5, 2}, {9, 9, 9, 9, 9, 9});
  EXPECT_EQ(skew_ns(six), 6);
  EXPECT_FALSE(latest_of(six).rank) << "two came last together";
  EXPECT_EQ(latest_of(six).gap_ns, 0);

  const Collective seven = collective({1, 2, 3, 4, 5, 16, 6}, {20, 21, 22, 23, 24, 25, 2});
  EXPECT_EQ(latest_of(seven).rank, 5u);
  EXPECT_EQ(latest_of(seven).gap_ns, 10);
  EXPECT_EQ(transfer_ns(seven, 0), 4);
  EXPECT_EQ(transfer_ns(seven, 6), -14) << "a root may be done before the last has come";
  EXPECT_FALSE(latest_of(collective({5}, {6})).rank);
}

// Rank 1 of W is 10 ms late in backward; one bucket at two thirds of backward, 12 ms on the wire.
void expect_by_hand(int64_t world_size) {
  MadeRun run;
  run.world_size = world_size;
  run.steps = 3;
  run.buckets = 1;
  run.transfer_ms = 12;
  run.slower = [](int64_t rank, int64_t, Phase phase) {
    return MadeRun::Slower{1, rank == 1 && phase == Phase::backward ? 10.0 : 0};
  };
  const Metrics metrics = metrics_of(timeline_of(run.make()));
  EXPECT_THAT(metrics.steps, testing::ElementsAre(2, 3));
  const double usual = 11 + 20 / 1.5, late = 11 + 20.0;  // when the bucket is ready
  const RankNumbers& other = metrics.ranks[0].mean;
  EXPECT_NEAR(other.arrival_ms, usual, 1e-5);
  EXPECT_NEAR(other.ready_ms, usual - 0.001, 1e-5);
  EXPECT_NEAR(other.wait_ms, late - usual, 1e-5);
  EXPECT_NEAR(other.transfer_ms, 12, 1e-5);
  EXPECT_NEAR(other.compute_ms, 30, 1e-5);
  EXPECT_NEAR(other.comm_ms, late - usual + 12, 1e-5);
  EXPECT_NEAR(other.exposed_ms, late + 12 - 31, 1e-5);
  EXPECT_NEAR(other.ddp_overlap_ms, 31 - usual, 1e-5);
  EXPECT_NEAR(*metrics.ranks[0].overlap, (31 - usual) / (late - usual + 12), 1e-6);
  EXPECT_NEAR(other.blame_ms, 0, 1e-9);
  EXPECT_NEAR(other.work_ms, 32, 1e-5);
  const RankNumbers& slow = metrics.ranks[1].mean;
  EXPECT_NEAR(slow.wait_ms, 0, 1e-9);
  EXPECT_NEAR(slow.exposed_ms, 2, 1e-5);
  EXPECT_NEAR(slow.blame_ms, late - usual, 1e-5);
  EXPECT_NEAR(metrics.skew_ms, late - usual, 1e-5);
  EXPECT_NEAR(*metrics.step_ms, 44, 1e-5);
  // 24 1/3 and 10 more over W until the bucket is ready, two thirds of them before it.
  const double ideal = usual + 10 / 1.5 / static_cast<double>(world_size) + 12 + 1;
  EXPECT_NEAR(*metrics.ideal_ms, ideal, 1e-5);
  EXPECT_NEAR(*metrics.slowdown, 44 / ideal, 1e-6);
  EXPECT_NEAR(*metrics.ranks[1].slowdown, 44 / ideal, 1e-6);
  EXPECT_NEAR(*metrics.ranks[0].slowdown, 1, 1e-6) << "as soon as the ideal of the others";
  EXPECT_NEAR(*metrics.ranks[1].relative_score, 32.0 / 42, 1e-6);
  EXPECT_NEAR(*metrics.ranks[0].relative_score, 1, 1e-6);
  EXPECT_NEAR(*metrics.ranks[1].individual_score, 1, 1e-6);
}

TEST(Metrics, OfAStepByHand) {
  for (const int64_t world_size : {2, 3, 6, 7}) {
    SCOPED_TRACE(world_size);
    expect_by_hand(world_size);
  }
}

TEST(Metrics, HoldTheirProperties) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    MadeRun run;
    run.seed = seed;
    run.jitter = 0.4;
    run.apart_ms = 5;
    run.steps = 5;
    run.launched = seed % 2 == 0;
    run.world_size = std::vector<int64_t>{1, 2, 3, 4, 6, 7}[seed % 6];
    const Timeline timeline = timeline_of(run.make());
    double lead_ms = 0;
    for (const Collective& b : timeline.collectives) {
      int64_t least = INT64_MAX;
      for (size_t rank = 0; rank < b.ranks.size(); ++rank) {
        EXPECT_GE(wait_ns(b, rank), 0);
        EXPECT_LE(wait_ns(b, rank), skew_ns(b));
        least = std::min(least, wait_ns(b, rank));
      }
      EXPECT_EQ(least, 0) << "the last one waits for nobody";
      EXPECT_LE(latest_of(b).gap_ns, skew_ns(b));
      if (b.step > 1) lead_ms += static_cast<double>(latest_of(b).gap_ns) * 1e-6;
    }
    const Metrics metrics = metrics_of(timeline);
    double blame_ms = 0;
    for (const StepMetrics& step : metrics.per_step)
      for (const RankNumbers& rank : step.ranks) {
        blame_ms += rank.blame_ms;
        EXPECT_LE(rank.exposed_ms, rank.comm_ms + 1e-9);
        EXPECT_NEAR(rank.exposed_ms + rank.overlapped_ms, rank.comm_ms, 1e-9);
        EXPECT_GE(*rank.overlap(), 0);
        EXPECT_LE(*rank.overlap(), 1);
        EXPECT_LE(rank.comm_ms, rank.wait_ms + rank.transfer_ms + 1e-9);
        EXPECT_LE(rank.work_ms, rank.step_ms + 1e-9);
        EXPECT_LE(rank.ready_ms, rank.arrival_ms);
        EXPECT_LE(rank.overlapped_ms, rank.ddp_overlap_ms + 1e-9) << "a span counts gaps as well";
      }
    EXPECT_NEAR(blame_ms, lead_ms, 1e-6) << "each collective's lead is blamed on one rank";
    EXPECT_GE(*metrics.slowdown, 1 - 1e-9);
    for (const RankMetrics& rank : metrics.ranks) {
      EXPECT_LE(*rank.relative_score, 1);
      EXPECT_LE(*rank.individual_score, 1);
      EXPECT_GE(*rank.slowdown, 1 - 0.2);
    }
  }
}

TEST(Metrics, TellASpikeOfAllFromOnesOwn) {
  MadeRun run;
  run.jitter = 0.02;
  run.slower = [](int64_t rank, int64_t step, Phase) {
    return MadeRun::Slower{step == 5 || (step == 9 && rank == 2) ? 2.0 : 1.0, 0};
  };
  for (const StepMetrics& step : metrics_of(timeline_of(run.make())).per_step)
    EXPECT_EQ(step.spikes.size(), step.step == 5 ? 4u : step.step == 9 ? 1u : 0u) << step.step;
}

TEST(Metrics, LeaveTheFirstStepAndDroppedOnesOut) {
  MadeRun run;
  RunOutcome outcome = run.make();
  std::erase_if(outcome.ranks[3].events, [](const Event& e) { return e.step < 4; });
  outcome.ranks[3].dropped = 50;
  const Metrics metrics = metrics_of(timeline_of(outcome));
  EXPECT_EQ(metrics.steps.front(), 5);
  EXPECT_EQ(metrics.left_out.size(), 4u);
  EXPECT_EQ(models_of(timeline_of(outcome)).size(), 16u);
  run.steps = 1;
  EXPECT_TRUE(metrics_of(timeline_of(run.make())).ranks.empty());
}

TEST(Metrics, WithoutCollectivesThereIsNoOverlap) {
  MadeRun run;
  run.buckets = 0;
  const Metrics metrics = metrics_of(timeline_of(run.make()));
  EXPECT_FALSE(metrics.ranks[0].overlap);
  EXPECT_NEAR(*metrics.slowdown, 1, 1e-9);
}

}  // namespace

}  // namespace lockstep
