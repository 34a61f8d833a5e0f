#include "scenarios/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

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

}  // namespace
}  // namespace lockstep
