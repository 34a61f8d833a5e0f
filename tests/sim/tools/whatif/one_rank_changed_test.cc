#include <gmock/gmock.h>

#include <random>

#include "sim/analysis/metrics.h"
#include "sim/tools/whatif/one_rank_changed.h"
#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

std::vector<StepModel> drawn_models(int64_t world_size, uint64_t seed) {
  MadeRun run;
  run.world_size = world_size;
  run.steps = 4;
  run.buckets = 1 + static_cast<int>(seed % 5);
  run.jitter = 0.4;
  run.apart_ms = 5;
  run.launched = seed % 2 == 0;
  run.seed = seed;
  run.delay_ms = [=](int64_t rank, int64_t step) {
    return static_cast<double>((seed + static_cast<uint64_t>(rank * 7 + step)) % 5);
  };
  return models_of(timeline_of(run.make()));
}

TEST(OneRankChanged, IsTheWholeStepReplayed) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    for (const int64_t world_size : {2, 3, 7})
      for (const StepModel& model : drawn_models(world_size, seed)) {
        const OneRankChanged changed(model);
        for (size_t rank = 0; rank < model.ranks(); ++rank) {
          EXPECT_NEAR(changed.step_ns(rank, changed.own(rank)), model.step_ns(), 1e-3);
          EXPECT_NEAR(changed.step_ns(rank, changed.of_others(rank)), model.without(rank).step_ns(),
                      1e-3)
              << "seed " << seed << ", rank " << rank << " of " << world_size;
        }
      }
}

// Services below 0, as of clocks that do not agree, and joins in the middle, which no made run has.
TEST(OneRankChanged, IsTheWholeStepReplayedWhateverTheStepIs) {
  std::mt19937_64 random(5);
  const auto drawn = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const size_t ranks = 2 + random() % 5, transfers = random() % 5;
    StepModel model;
    const auto by_rank = [&](double least, double most) {
      std::vector<double> values(ranks);
      for (double& value : values) value = drawn(least, most);
      return values;
    };
    for (size_t i = 0; i < transfers; ++i)
      model.transfers.push_back({by_rank(0, 50), by_rank(-40, 90)});
    for (size_t i = 0; i <= transfers; ++i) {
      StepModel::Slot slot;
      if (i > 0) slot.arrives = i - 1;
      for (size_t joined = 0; joined < i; ++joined)
        if (random() % 3 == 0) slot.joins.push_back(joined);
      slot.work_ns = by_rank(0, 100);
      slot.core_wait_ns = std::vector<double>(ranks, 0);
      model.slots.push_back(slot);
    }
    const OneRankChanged changed(model);
    for (size_t rank = 0; rank < ranks; ++rank) {
      EXPECT_NEAR(changed.step_ns(rank, changed.own(rank)), model.step_ns(), 1e-9);
      EXPECT_NEAR(changed.step_ns(rank, changed.of_others(rank)), model.without(rank).step_ns(),
                  1e-9);
    }
  }
}

int64_t operations_for(int64_t world_size) {
  int64_t sum = 0;
  for (const StepModel& model : drawn_models(world_size, 4)) {
    const OneRankChanged changed(model);
    for (size_t rank = 0; rank < model.ranks(); ++rank)
      changed.step_ns(rank, changed.of_others(rank));
    sum += changed.operations();
  }
  return sum;
}

TEST(OneRankChanged, WorkGrowsWithTheRanksNotWithTheirSquare) {
  const int64_t few = operations_for(50);
  EXPECT_GT(few, 0);
  EXPECT_LT(operations_for(200), 5 * few);
}

}  // namespace

}  // namespace lockstep
