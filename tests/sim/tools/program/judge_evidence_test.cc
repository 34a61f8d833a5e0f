#include "sim/tools/program/judge_evidence.h"

#include <gtest/gtest.h>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/judge_order.h"
#include "sim/tools/program/judge_penalty.h"
#include "tests/sim/tools/program/judged_ranks.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

const std::vector<double> kWeights = {4, 1, -2, 3, 5}, kBias = {-1, 2, 1, 2, 3};
const std::vector<double> kWeightGradient = {1, -2, 1, 1, 3}, kBiasGradient = {2, 1, 0, -1, 2};

Sketch sum(const std::vector<double>& a, double factor, const std::vector<double>& b) {
  std::vector<double> added = a;
  for (size_t i = 0; i < added.size(); ++i) added[i] += factor * b[i];
  return added;
}

ProgramRank made(int64_t rank, int64_t world) {
  ProgramRank made;
  made.rank = rank;
  made.world = world;
  made.ended = true;
  for (const std::string number : {"1", "2"}) {
    ProgramStep step;
    step.line = "train.py:9";
    step.names = {"weight", "bias"};
    step.grad_hashes = step.param_hashes = {"a", "b"};
    for (int64_t r = 0; r < (world == 1 ? 2 : 1); ++r)
      step.samples.push_back(number + "/" + std::to_string(world == 1 ? r : rank));
    step.grads = {kWeightGradient, kBiasGradient};
    step.params = {kWeights, kBias};
    if (number == "1") step.before = step.params;
    made.steps.push_back(step);
  }
  return made;
}

Ranks two() { return {made(0, 2), made(1, 2)}; }

TEST(ProgramEvidence, WhatIsAMultipleOfTheParametersIsAPenalty) {
  for (const size_t step : {size_t{0}, size_t{1}}) {
    Ranks ranks = two();
    for (ProgramRank& rank : ranks)
      rank.steps[step].grads = {sum(kWeightGradient, 0.2, kWeights),
                                sum(kBiasGradient, 0.2, kBias)};
    const ProgramFinding found = judge_one_device(ranks, made(0, 1));
    EXPECT_EQ(found.cause, ProgramCause::penalty_scaled);
    EXPECT_NE(found.words.find("the excess is 0.2 times the parameters"), std::string::npos);
    for (ProgramRank& rank : ranks) rank.steps[step].grads[1] = sum(kBiasGradient, 0.1, kBias);
    EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::unknown) << "two numbers";
    for (ProgramRank& rank : ranks) rank.steps[step].grads[1] = kBiasGradient;
    EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::unknown) << "one alone";
  }
}

TEST(ProgramEvidence, ADivisorThatOneDeviceHasAsWellAccusesNobody) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) rank.steps[1].grads[0] = sum(kWeightGradient, 1, kWeightGradient);
  ProgramRank one = made(0, 1);
  EXPECT_EQ(judge_one_device(ranks, one).cause, ProgramCause::not_divided);
  one.steps[1].multiplied = {{"weight", 1.0 / 3}};
  const ProgramFinding other = judge_one_device(ranks, one);
  EXPECT_EQ(other.cause, ProgramCause::not_divided);
  EXPECT_NE(other.words.find("one device divides by 3, too"), std::string::npos);
  one.steps[1].multiplied = {{"weight", 0.5}};
  EXPECT_EQ(judge_one_device(ranks, one).verdict, Verdict::inconclusive);
}

TEST(ProgramEvidence, AHalfOfAGatheredLossIsNotDividedTwice) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) {
    rank.steps[1].grads[0] = sum(kWeightGradient, -0.5, kWeightGradient);
    rank.steps[1].gathered_inside = true;
  }
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::gathered_as_constants);
  for (ProgramRank& rank : ranks) rank.steps[1].multiplied = {{"weight", 0.5}};
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::divided_twice);
}

TEST(ProgramEvidence, ModelsAndBuffersOfEachRanksOwnAreTold) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) rank.steps[1].grads[0] = sum(kWeightGradient, 0.3, kBias);
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::unknown);
  ranks[1].steps[0].buffer_hash = "x";
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::own_buffers);
  ranks[1].steps[1].untrained = "x";  // called by this rank alone
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::own_buffers);
  ranks[0].steps[1].untrained = "y";
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::own_frozen_model);
  ranks[0].steps[1].partly = {"weight"};
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::some_ranks_summed);
  ranks[1].steps[1].changed = {"weight"};
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::changed_before_sum);
}

TEST(ProgramEvidence, AFrozenModelThatOneDeviceHasOtherwiseIsTold) {
  Ranks ranks = two();
  ProgramRank one = made(0, 1);
  for (ProgramRank& rank : ranks) {
    rank.steps[1].grads[0] = sum(kWeightGradient, 0.3, kBias);
    rank.steps[1].untrained_sketch = kBias;
  }
  EXPECT_EQ(judge_one_device(ranks, one).cause, ProgramCause::unknown) << "it called none";
  one.steps[1].untrained_sketch = sum(kBias, 1e-14, kBias);
  EXPECT_EQ(judge_one_device(ranks, one).cause, ProgramCause::unknown) << "alike";
  one.steps[1].untrained_sketch = sum(kBias, 1e-3, kWeights);
  EXPECT_EQ(judge_one_device(ranks, one).cause, ProgramCause::other_frozen_model);
  ranks[0].steps[1].untrained = "x";
  ranks[1].steps[1].untrained = "y";
  EXPECT_EQ(judge_one_device(ranks, one).cause, ProgramCause::own_frozen_model);
}

TEST(ProgramEvidence, GradientsThatAreAsManyTimesAsRanksNeedNoSamples) {
  Ranks ranks = two();
  ProgramRank one = made(0, 1);
  one.steps[1].samples.clear();
  for (ProgramRank& rank : ranks) {
    rank.steps[1].samples.clear();
    rank.steps[1].grads = {sum(kWeightGradient, 1, kWeightGradient),
                           sum(kBiasGradient, 1, kBiasGradient)};
  }
  const ProgramFinding found = judge_one_device(ranks, one);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::not_divided);
  for (ProgramRank& rank : ranks) rank.steps[1].grads[1] = kBiasGradient;
  EXPECT_EQ(judge_one_device(ranks, one).verdict, Verdict::inconclusive) << "not all of them";
}

TEST(ProgramEvidence, AMultipleOfTheWholeIsTheSumOfAllRanksWhateverTheGroups) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) {
    rank.steps[1].partly = {"weight", "bias"};
    rank.steps[1].grads = {sum(kWeightGradient, 0.5, kWeightGradient),
                           sum(kBiasGradient, 0.5, kBiasGradient)};
  }
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::scaled_by_ranks);
  for (ProgramRank& rank : ranks) rank.steps[1].grads[1] = kBiasGradient;
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).cause, ProgramCause::some_ranks_summed);
}

TEST(ProgramEvidence, WeightsThatAreApartByRoundingBeganAlike) {
  Ranks ranks = two();
  ranks[1].steps[0].before[0] = sum(kWeights, 1e-15, kWeights);
  ranks[1].steps[0].param_hashes[0] = "x";
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::changed_between_steps);
  for (ProgramRank& rank : ranks) rank.steps[0].backwards = 2;
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::own_weights);
}

TEST(ProgramEvidence, WhatDdpHasMadeAlikeWasChangedSince) {
  Ranks ranks = two();
  ranks[1].steps[0].before[0] = kBias;
  ranks[1].steps[0].param_hashes[0] = "x";
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::different_start);
  for (ProgramRank& rank : ranks) rank.steps[0].ddp_forwards = rank.steps[0].forwards = 1;
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::changed_between_steps);
  ranks[0].steps[0].unheld = {"weight"};
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::different_start);
}

TEST(ProgramEvidence, ReplicasThatNoRankIsAreTold) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) {
    rank.replicas = 4;
    rank.replicas_dealt = {rank.rank};
  }
  EXPECT_EQ(judge_order(ranks).cause, ProgramCause::other_replicas);
  for (ProgramRank& rank : ranks) rank.replicas_dealt.push_back(rank.rank + 2);
  EXPECT_EQ(judge_order(ranks).verdict, Verdict::pass) << "each rank is two of them";
  for (ProgramRank& rank : ranks) rank.replicas = 1, rank.replicas_dealt = {0};
  EXPECT_EQ(judge_order(ranks).verdict, Verdict::pass) << "replicas of several ranks each";
}

TEST(ProgramEvidence, SamplersThatShuffleOtherwiseAreTold) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) rank.shuffles = {"seed 0, epoch 0", "seed 0, epoch 1"};
  EXPECT_EQ(judge_order(ranks).verdict, Verdict::pass);
  ranks[1].shuffles.pop_back();  // an evaluation more, or less
  EXPECT_EQ(judge_order(ranks).verdict, Verdict::pass);
  ranks[1].shuffles[0] = "seed 1, epoch 0";
  EXPECT_EQ(judge_order(ranks).cause, ProgramCause::other_shuffles);
  EXPECT_EQ(
      judge_order(ranks).words,
      "DistributedSampler shuffles by seed 0, epoch 0 on rank 0, by seed 1, epoch 0 on rank 1");
}

TEST(ProgramEvidence, AStepThatExchangesGradientsIsJudgedByWhatItLeaves) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) rank.steps[0].grads[0] = kBias;
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).verdict, Verdict::fail);
  ProgramRank one = made(0, 1);
  for (ProgramStep& step : one.steps) step.within_step = 2;
  for (ProgramRank& rank : ranks)
    for (ProgramStep& step : rank.steps) step.within_step = 2;
  EXPECT_EQ(judge_one_device(ranks, one).verdict, Verdict::pass);
  EXPECT_TRUE(one_device_control_fails(ranks, one));
  for (ProgramRank& rank : ranks) rank.steps[0].params[1] = kWeights;
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).entry, "parameter bias");
  ranks[0].steps[0].samples = {"another"};
  EXPECT_EQ(judge_one_device(ranks, made(0, 1)).verdict, Verdict::inconclusive);
}

TEST(ProgramEvidence, SplitsThatDifferAreTold) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) rank.splits = {"a", "b"};
  EXPECT_EQ(judge_order(ranks).verdict, Verdict::pass);
  ranks[1].splits[1] = "c";
  EXPECT_EQ(judge_order(ranks).cause, ProgramCause::other_splits);
  ranks[1].splits.pop_back();
  EXPECT_EQ(judge_order(ranks).verdict, Verdict::pass);
}

// Of a scaler that a checkpoint has set, or that not all ranks have, nothing is known.
TEST(ProgramEvidence, ScalesOfTheLossThatDifferAreTold) {
  Ranks ranks = two();
  for (ProgramRank& rank : ranks) rank.loss_scales = {"65536.0", "1024.0"};
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::pass);
  ranks[1].loss_scales[1] = "2048.0";
  const ProgramFinding found = judge_replicas(ranks);
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::loss_scaled_apart);
  EXPECT_NE(found.words.find("starts with 1024.0 on rank 0 and 2048.0 on rank 1"),
            std::string::npos);
  ranks[1].loss_scales[1] = "";
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::pass);
  ranks[1].loss_scales = {"65536.0"};
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::pass);
}

TEST(ProgramEvidence, AnOptimizersStateThatARankChangedIsTold) {
  Ranks ranks = two();
  ranks[1].steps[0].param_hashes[0] = "x";
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::unknown);
  ranks[1].steps[0].state_before = "y";
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::state_changed);
}

TEST(ProgramEvidence, AnOptimizerOfAnotherCopyIsTold) {
  Ranks ranks = two();
  ProgramRank one = made(0, 1);
  const auto none = [](ProgramRank* rank) {
    for (ProgramStep& step : rank->steps) step.grads = {std::nullopt, std::nullopt};
  };
  for (ProgramRank& rank : ranks) none(&rank);
  none(&one);
  const ProgramFinding found = judge_one_device(ranks, one);
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_NE(found.words.find("parameters of the trained model"), std::string::npos) << found.words;
}

TEST(ProgramEvidence, OfGradientsThatAreLostInAGather) {
  judged::Ranks ranks = judged::three();
  ranks[0].refused = true;
  ranks[0].steps[1].unused = {"weight", "bias"};
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::unused_parameter);
  ranks[0].steps[1].gathered = true;
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::gathered_as_constants);
  ranks[0].steps[1].unused = {"bias"};
  EXPECT_EQ(judge_broken_off(ranks).cause, ProgramCause::unused_parameter) << "others have theirs";
}

}  // namespace
}  // namespace lockstep
