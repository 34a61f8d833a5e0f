#include "sim/tools/program/judge_shards.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/shards.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

constexpr size_t kParameters = 4;

// Of rank and parameter; whatever they are, they differ.
std::vector<double> made_shard(size_t rank, size_t parameter) {
  std::vector<double> made;
  for (size_t k = 0; k < 4; ++k)
    made.push_back(
        std::sin(std::pow(static_cast<double>(1 + rank * 31 + parameter * 7 + k * 3), 2)));
  made.push_back(1 + static_cast<double>(rank));
  return made;
}

ProgramStep made_step() {
  ProgramStep step;
  for (size_t i = 0; i < kParameters; ++i) step.names.push_back("p" + std::to_string(i));
  step.grad_hashes = step.param_hashes = std::vector<std::string>(kParameters, "h");
  step.grads = std::vector<Sketch>(kParameters);
  step.params = std::vector<Sketch>(kParameters, std::vector<double>(5, 1.0));
  return step;
}

// Shards of three ranks, each times its factor, joined; and one device with the due ones.
struct Made {
  Ranks ranks;
  ProgramRank one;
};

Made made_with(const std::vector<double>& factors) {
  Made made;
  made.one.steps = {made_step()};
  for (size_t rank = 0; rank < factors.size(); ++rank) {
    ProgramStep step = made_step();
    step.shards = step.names;
    for (size_t i = 0; i < kParameters; ++i) {
      std::vector<double> shard = made_shard(rank, i);
      Sketch& due = made.one.steps[0].grads[i];
      if (!due) due = std::vector<double>(5, 0.0);
      for (size_t k = 0; k < 5; ++k) (*due)[k] += shard[k];
      for (double& value : shard) value *= factors[rank];
      step.grads[i] = shard;
    }
    made.ranks.emplace_back().rank = static_cast<int64_t>(rank);
    made.ranks.back().steps = {step};
  }
  join_shards(&made.ranks);
  return made;
}

std::optional<ShardFinding> found_of(const Made& made) {
  return judge_shards(made.ranks, made.one, 0);
}

// Two ranks that hold gradients whole, each parameter's times its factor; all due ones have norm 1.
Made made_whole(const std::vector<double>& factors) {
  Made made;
  made.one.steps = {made_step()};
  ProgramStep step = made_step();
  for (size_t i = 0; i < kParameters; ++i) {
    std::vector<double> due = made_shard(0, i);
    made.one.steps[0].grads[i] = due;
    for (double& value : due) value *= factors[i];
    step.grads[i] = due;
  }
  made.ranks.resize(2);
  for (ProgramRank& rank : made.ranks) rank.steps = {step};
  return made;
}

TEST(ProgramShardCauses, OneLimitOfWhatEachOwnerHasIsAClipByShard) {
  const Made made = made_whole({0.5, 0.5, 0.5 * (1 + 1e-5), 0.5 * (1 + 1e-5)});
  const auto found = judge_owned_parts(made.ranks, made.one, 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause, ProgramCause::clipped_by_shard);
  EXPECT_EQ(found->words,
            "parts of the gradients are those of one device, times 0.5, 0.5, and the norm of "
            "several parts is 0.7071");
}

TEST(ProgramShardCauses, PartsOfOtherNormsWereNotClippedToOne) {
  const Made made = made_whole({0.5, 0.5, 0.25, 0.25});
  EXPECT_FALSE(judge_owned_parts(made.ranks, made.one, 0));
}

TEST(ProgramShardCauses, AllByOneFactorHasNoParts) {
  const Made made = made_whole({0.5, 0.5, 0.5, 0.5});
  EXPECT_FALSE(judge_owned_parts(made.ranks, made.one, 0));
}

TEST(ProgramShardCauses, OneLimitOfEachRanksNormIsAClipByShard) {
  const auto found = found_of(made_with({0.5, 0.25, 1.0 / 6}));  // norms are as 1 to 2 to 3
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause, ProgramCause::clipped_by_shard);
  EXPECT_EQ(found->words,
            "each rank's shards are those of one device, times 0.5, 0.25, 0.1667, and their norm "
            "on several ranks is 1");
}

TEST(ProgramShardCauses, OtherFactorsAreScaledApart) {
  const auto found = found_of(made_with({1, 1, 0.5}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause, ProgramCause::scaled_apart);
  EXPECT_FALSE(found_of(made_with({0.5, 0.5, 0.5}))) << "all alike are another mistake";
}

TEST(ProgramShardCauses, ARankWithoutGradientsIsTold) {
  const auto found = found_of(made_with({1, 0, 1}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->words, "all shards of gradients of rank 1 are zero, or missing");
}

TEST(ProgramShardCauses, AnUpdateThatNoGradientMadeIsNoUnknownCause) {
  Made made = made_with({1, 0, 1});
  for (ProgramRank& rank : made.ranks) {
    rank.ended = true;
    rank.steps[0].state_hash = rank.rank == 1 ? "a" : "b";
  }
  const ProgramFinding found = judge_replicas(made.ranks);
  EXPECT_EQ(found.cause, ProgramCause::scaled_apart);
  EXPECT_EQ(found.words,
            "rank 1 differs from the other ranks; all shards of gradients of rank 1 are zero, or "
            "missing");
}

TEST(ProgramShardCauses, WhatIsNoMultipleIsLeftToOthers) {
  Made made = made_with({1, 1, 0.5});
  (*made.one.steps[0].grads[2])[1] += 0.1;
  EXPECT_FALSE(found_of(made));
  Made whole = made_with({1, 1, 0.5});
  for (ProgramRank& rank : whole.ranks) rank.steps[0].shards.pop_back();
  EXPECT_FALSE(found_of(whole));
}

}  // namespace
}  // namespace lockstep
