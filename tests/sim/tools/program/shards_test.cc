#include "sim/tools/program/shards.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

ProgramRank rank_of(const std::string& hash, const std::vector<double>& shard) {
  ProgramStep step;
  step.names = {"sharded", "whole"};
  step.shards = {"sharded"};
  step.grads = step.params = step.before = {shard, std::vector<double>{1, 1, 1, 1, 2}};
  step.grad_hashes = step.param_hashes = {hash, "same"};
  ProgramRank rank;
  rank.steps = {step};
  return rank;
}

std::vector<ProgramRank> two_owners() {
  return {rank_of("a", {1, 2, 3, 4, 3}), rank_of("b", {10, 20, 30, 40, 4})};
}

TEST(ProgramShards, AddUpToTheWhole) {
  std::vector<ProgramRank> ranks = two_owners();
  join_shards(&ranks);
  for (const ProgramRank& rank : ranks) {
    const ProgramStep& step = rank.steps[0];
    EXPECT_EQ(*step.params[0], (std::vector<double>{11, 22, 33, 44, 5}));
    EXPECT_EQ(*step.before[0], *step.params[0]);
    EXPECT_EQ(*step.grads[1], (std::vector<double>{1, 1, 1, 1, 2}));
    EXPECT_EQ(step.param_hashes, (std::vector<std::string>{"ab", "same"}));
  }
}

TEST(ProgramShards, OfWhichOneIsNotFiniteAreNoWhole) {
  std::vector<ProgramRank> ranks = two_owners();
  ranks[1].steps[0].params[0].reset();
  ranks[1].steps[0].grads[0].reset();  // a rank without rows of it has no gradient
  join_shards(&ranks);
  EXPECT_FALSE(ranks[0].steps[0].params[0]);
  EXPECT_EQ(ranks[1].steps[0].grads[0]->back(), 3);
}

TEST(ProgramShards, OfEachCopyAddUpByThemselves) {
  std::vector<ProgramRank> ranks = two_owners();
  for (const ProgramRank& rank : two_owners()) {
    ranks.push_back(rank);
    ranks.back().steps[0].copy = 1;
  }
  *ranks[3].steps[0].params[0] = {0, 0, 0, 0, 0};
  ranks[3].steps[0].param_hashes[0] = "c";
  join_shards(&ranks);
  EXPECT_EQ(*ranks[1].steps[0].params[0], (std::vector<double>{11, 22, 33, 44, 5}));
  EXPECT_EQ(*ranks[2].steps[0].params[0], (std::vector<double>{1, 2, 3, 4, 3}));
  EXPECT_EQ(ranks[0].steps[0].param_hashes[0], "ab");
  EXPECT_EQ(ranks[2].steps[0].param_hashes[0], "ac") << "it differs from the first copy";
  EXPECT_EQ(*ranks[3].steps[0].shard_grads[0], (std::vector<double>{10, 20, 30, 40, 4}));
}

TEST(ProgramShards, OfAStepThatNotAllMadeStayAsTheyAre) {
  std::vector<ProgramRank> ranks = two_owners();
  ranks[0].steps.push_back(ranks[0].steps[0]);
  join_shards(&ranks);
  EXPECT_EQ(ranks[0].steps[0].param_hashes[0], "ab");
  EXPECT_EQ(ranks[0].steps[1].param_hashes[0], "a");
}

}  // namespace
}  // namespace lockstep
