#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "scenarios/split.h"

namespace lockstep {
namespace {

using SampledRows = std::vector<int64_t>;

TEST(Sampler, ThePermutationIsThatOfAPublishedRun) {
  // What DistributedSampler's seed 0 gives for CIFAR-10's 50,000 samples in epoch 0.
  const SampledRows published = {36044, 49165, 37807, 11341, 6091,  16904,
                                 36293, 28026, 24681, 17849, 49031, 20152};
  const SampledRows order = random_permutation(50'000, 0);
  EXPECT_EQ(SampledRows(order.begin(), order.begin() + 12), published);
  EXPECT_EQ(deal_in_turn({}, 50'000, 4, 0)[1][0], 49165);
  EXPECT_EQ(deal_in_turn({}, 50'000, 4, 0)[0][1], 6091);
}

TEST(Sampler, TheHeadIsRepeatedAsOftenAsItTakes) {
  EXPECT_EQ(deal_in_turn({.shuffle = false}, 2, 5, 0), (DealtRows{{0}, {1}, {0}, {1}, {0}}));
  EXPECT_EQ(deal_in_turn({.shuffle = false}, 7, 3, 0),
            (DealtRows{{0, 3, 6}, {1, 4, 0}, {2, 5, 1}}));
  EXPECT_EQ(deal_in_turn({.shuffle = false, .drop_last = true}, 8, 3, 0),
            (DealtRows{{0, 3}, {1, 4}, {2, 5}}));
  EXPECT_EQ(deal_in_turn({.shuffle = false, .drop_last = true}, 2, 3, 0), (DealtRows{{}, {}, {}}));
}

TEST(Sampler, SeedAndEpochAreAdded) {
  EXPECT_EQ(deal_in_turn({.seed = 3}, 20, 3, 2), deal_in_turn({.seed = 5}, 20, 3, 0));
  EXPECT_NE(deal_in_turn({.seed = 3}, 20, 3, 2), deal_in_turn({.seed = 3}, 20, 3, 3));
}

TEST(Sampler, BlocksHoldWhatIsLeft) {
  EXPECT_EQ(deal_in_blocks(false, true, 7, 3, 0), (DealtRows{{0, 1, 2}, {3, 4, 5}, {6, 0, 1}}));
  EXPECT_EQ(deal_in_blocks(false, false, 7, 3, 0), (DealtRows{{0, 1}, {2, 3}, {4, 5}}));
}

using Rows = std::vector<int64_t>;

Scenario scenario_of(const std::string& kind, int64_t world_size, int64_t batch_size,
                     int64_t samples) {
  Scenario scenario;
  scenario.batch_size = batch_size;
  scenario.world_size = world_size;
  scenario.data.options.set("samples", samples);
  scenario.split.kind = kind;
  if (kind == "distributed") {
    scenario.split.options.set("shuffle", false);
    scenario.split.options.set("drop_last", false);
    scenario.split.options.set("seed", int64_t{0});
  }
  if (kind == "contiguous") scenario.split.options.set("remainder", std::string("refuse"));
  if (kind.starts_with("libtorch")) scenario.split.options.set("allow_duplicates", true);
  scenario.split.options.set("set_epoch", true);
  return scenario;
}

TEST(Split, BatchesFollowEachOtherAndStartAgain) {
  const Scenario scenario = scenario_of("contiguous", 3, 6, 12);
  EXPECT_EQ(batch_indices(scenario, 1), (Rows{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(batch_indices(scenario, 2), (Rows{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(batch_indices(scenario, 3), batch_indices(scenario, 1));
  EXPECT_EQ(shard_indices(scenario, 2, 0), (Rows{6, 7}));
  EXPECT_EQ(shard_indices(scenario, 2, 2), (Rows{10, 11}));
  EXPECT_EQ(Split(scenario).same_step(4), 2);
}

TEST(Split, KnowsHowManySamplesABatchHas) {
  for (const char* kind : {"contiguous", "distributed", "libtorch_random", "libtorch_sequential"})
    for (const int64_t samples : {12, 24}) {
      const Scenario scenario = scenario_of(kind, 3, 12, samples);
      Split split(scenario);
      for (int64_t step = 1; step <= 5; ++step)
        EXPECT_EQ(split.batch_samples(step), std::ssize(split.batch(step))) << kind << step;
    }
  const Scenario short_last = scenario_of("distributed", 3, 12, 31);  // 11 a rank: 4, 4, 3
  EXPECT_EQ(Split(short_last).batch_samples(2), 12);
  EXPECT_EQ(Split(short_last).batch_samples(3), 9);
  Scenario uneven = scenario_of("contiguous", 3, 20, 40);
  for (const char* remainder : {"refuse", "pad", "drop"}) {
    uneven.split.options.set("remainder", std::string(remainder));
    Split split(uneven);
    EXPECT_EQ(split.batch_samples(2), std::ssize(split.batch(2))) << remainder;
  }
}

TEST(Split, WhatTheWorldSizeDoesNotDivideIsSpreadPaddedOrDropped) {
  Scenario scenario = scenario_of("contiguous", 3, 20, 40);
  Split uneven(scenario);
  EXPECT_EQ(uneven.shard_sizes(), (Rows{7, 6}));
  EXPECT_EQ(uneven.least_shard(), 6);
  EXPECT_EQ(uneven.shard(2, 0), (Rows{20, 21, 22, 23, 24, 25, 26}));
  EXPECT_EQ(uneven.shard(2, 2), (Rows{34, 35, 36, 37, 38, 39}));
  EXPECT_EQ(uneven.batch(1).size(), 20U);
  scenario.split.options.set("remainder", std::string("pad"));
  EXPECT_EQ(shard_indices(scenario, 2, 2), (Rows{34, 35, 36, 37, 38, 39, 20}));
  scenario.split.options.set("remainder", std::string("drop"));
  EXPECT_EQ(shard_indices(scenario, 2, 2), (Rows{32, 33, 34, 35, 36, 37}));
  EXPECT_EQ(batch_indices(scenario, 1).size(), 18U);
}

TEST(Split, ASamplersLastBatchOfAnEpochMayBeShort) {
  const Scenario scenario = scenario_of("distributed", 3, 6, 14);  // padded to 15: 5 rows each
  Split split(scenario);
  EXPECT_EQ(split.steps_per_epoch(), 3);
  EXPECT_EQ(split.shard_sizes(), (Rows{2, 1}));
  EXPECT_EQ(split.shard(1, 1), (Rows{1, 4}));
  EXPECT_EQ(split.shard(3, 1), (Rows{13}));
  EXPECT_EQ(split.shard(3, 2), (Rows{0}));  // the head again
  EXPECT_EQ(split.batch(3), (Rows{12, 13, 0}));
  EXPECT_EQ(split.shard(4, 1), split.shard(1, 1));
}

TEST(Split, RanksMayHaveFewerBatchesThanOthers) {
  Scenario scenario = scenario_of("contiguous", 3, 6, 18);
  scenario.split.options.set("batches_per_rank", Rows{1, 3, 2});
  Split split(scenario);
  EXPECT_EQ(split.steps_per_epoch(), 3);
  EXPECT_FALSE(split.is_even());
  EXPECT_EQ(split.batch(1), (Rows{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(split.batch(2), (Rows{8, 9, 10, 11}));
  EXPECT_EQ(split.batch(3), (Rows{14, 15}));
  EXPECT_EQ(split.batch(4), split.batch(1));
  EXPECT_EQ(split.shard(2, 0), Rows{});
  EXPECT_EQ(split.shard_sizes(), Rows{2});
  for (int64_t step = 1; step <= 6; ++step) {
    EXPECT_EQ(split.batch_samples(step), std::ssize(split.batch(step))) << step;
    EXPECT_EQ(split.active_ranks(step), 4 - ((step - 1) % 3 + 1)) << step;
  }
  EXPECT_TRUE(Split(scenario_of("contiguous", 3, 6, 18)).is_even());
}

TEST(Split, ASamplerThatDoesNotPadLeavesSomeRanksABatchLess) {
  Scenario scenario = scenario_of("distributed", 3, 6, 20);  // rows 7, 7, 6 in batches of 2
  scenario.split.options.set("pad", false);
  Split split(scenario);
  EXPECT_EQ(split.steps_per_epoch(), 4);
  EXPECT_EQ(split.batches(0), 4);
  EXPECT_EQ(split.batches(2), 3);
  EXPECT_EQ(split.shard_sizes(), (Rows{2, 1}));
  EXPECT_EQ(split.batch(4), (Rows{18, 19}));
  EXPECT_EQ(split.batch_samples(4), 2);
  EXPECT_EQ(split.active_ranks(4), 2);
  EXPECT_EQ(split.shard(4, 2), Rows{});
  scenario.split.options.set("drop_last", true);
  EXPECT_TRUE(Split(scenario).is_even());
}

TEST(Split, MnistOnFourRanksTakes469StepsTheLastOf4x24) {
  const Scenario scenario = scenario_of("distributed", 4, 128, 60'000);
  Split split(scenario);
  EXPECT_EQ(split.steps_per_epoch(), 469);
  EXPECT_EQ(split.shard_sizes(), (Rows{32, 24}));
  EXPECT_EQ(split.shard(469, 3).size(), 24U);
  EXPECT_EQ(split.shard(470, 3).size(), 32U);
}

TEST(Split, EveryEpochHasItsOwnOrderUnlessTheSamplerIsNotTold) {
  for (const std::string kind : {"distributed", "libtorch_random"}) {
    Scenario scenario = scenario_of(kind, 3, 6, 18);
    scenario.split.options.set("shuffle", true);
    Split told(scenario);
    const auto epoch = [](Split& split, int64_t first) {
      Rows rows;
      for (int64_t step = first; step < first + 3; ++step)
        for (int64_t row : split.batch(step)) rows.push_back(row);
      return rows;
    };
    EXPECT_EQ(told.same_step(4), 0);
    EXPECT_NE(epoch(told, 1), epoch(told, 4)) << kind;
    const Rows rows = epoch(told, 4);
    EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), 18U) << kind;
    const Rows first = epoch(told, 1);
    scenario.split.options.set("set_epoch", false);
    Split untold(scenario);
    EXPECT_EQ(epoch(untold, 4), first) << kind;
    EXPECT_EQ(untold.same_step(4), 1);
  }
}

TEST(Split, SamplersOfLibTorchGiveBlocks) {
  const Scenario scenario = scenario_of("libtorch_sequential", 3, 6, 14);
  Split split(scenario);
  EXPECT_EQ(split.shard(1, 0), (Rows{0, 1}));
  EXPECT_EQ(split.shard(1, 2), (Rows{10, 11}));
  EXPECT_EQ(split.shard(3, 2), (Rows{0}));
}

}  // namespace

}  // namespace lockstep
