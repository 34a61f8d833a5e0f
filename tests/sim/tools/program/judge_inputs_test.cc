#include "sim/tools/program/judge_inputs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/tools/program/judge_causes.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Loaders give "0" to "3"; forwards are given what a script makes of them.
ProgramRank made(int64_t rank, int64_t world, const std::string& prefix) {
  ProgramRank made;
  made.rank = rank;
  made.world = world;
  made.ended = true;
  ProgramStep step;
  step.line = "train.py:9";
  step.names = {"weight", "bias"};
  step.grad_hashes = step.param_hashes = {"a", "b"};
  for (int64_t i = 0; i < 4; ++i) {
    if (world > 1 && i % world != rank) continue;
    step.loaded.push_back(std::to_string(i));
    step.samples.push_back(prefix + std::to_string(i));
  }
  step.ddp_forwards = step.forwards = step.backwards = 1;
  step.grads = {std::vector<double>{1, -2, 1, 1, 3}, std::vector<double>{2, 1, 0, -1, 2}};
  step.params = step.before = step.grads;
  made.steps.push_back(step);
  return made;
}

Ranks two(const std::string& prefix) { return {made(0, 2, prefix), made(1, 2, prefix)}; }

// One device, of which gradients differ from those of the ranks.
ProgramRank other_one(double factor = 1.7) {
  ProgramRank one = made(0, 1, "of all ");
  for (double& value : *one.steps[0].grads[0]) value *= factor;
  return one;
}

TEST(ProgramInputs, WhatIsStandardizedOverEachRanksBatchFails) {
  Ranks ranks = two("of its own ");
  for (ProgramRank& rank : ranks) rank.steps[0].standardized = true;
  const ProgramFinding found = judge_steps(ranks, other_one());
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::own_statistics);
  EXPECT_EQ(found.entry, "inputs");
  ranks[1].steps[0].standardized = false;
  EXPECT_EQ(judge_steps(ranks, other_one()).verdict, Verdict::inconclusive);
}

TEST(ProgramInputs, PaddingThatChangesTheResultIsAFailureOfTheStepThatDiffers) {
  const Ranks ranks = two("of its own ");
  const ProgramRank one = other_one();
  const ProgramFinding found = padding_failure(ranks, one, judge_steps(ranks, one));
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::unmasked_padding);
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.entry, "gradient of weight");
  EXPECT_EQ(found.line, "train.py:9");
}

TEST(ProgramInputs, OtherInputsOfTheSameSamplesPassForNobodysDraws) {
  const Ranks ranks = two("of its own ");
  const ProgramFinding before = judge_steps(ranks, other_one());
  EXPECT_TRUE(before.other_data && before.same_loaded);
  ProgramRank handed = made(0, 1, "of its own ");
  handed.handed = true;
  EXPECT_EQ(judge_handed(ranks, handed, before).verdict, Verdict::inconclusive);
  for (const auto change : {+[](ProgramStep* step) { step->drew = true; },
                            +[](ProgramStep* step) { step->samples.pop_back(); },
                            +[](ProgramStep* step) { step->loaded[0] = "another"; },
                            +[](ProgramStep* step) { step->loaded.clear(); }}) {
    Ranks changed = ranks;
    change(&changed[1].steps[0]);
    EXPECT_FALSE(judge_steps(changed, other_one()).same_loaded);
  }
  ProgramFinding drawn = before;
  drawn.same_loaded = false;
  EXPECT_EQ(judge_handed(ranks, handed, drawn).verdict, Verdict::pass);
}

TEST(ProgramInputs, OneDeviceThatComputesOthersOfTheSameProvesNothing) {
  const Ranks ranks = two("of its own ");
  ProgramRank handed = made(0, 1, "of its own ");
  handed.handed = true;
  ProgramFinding before = judge_steps(ranks, other_one());
  before.same_loaded = false;
  handed.steps[0].drawn = handed.steps[0].samples;
  EXPECT_EQ(judge_handed(ranks, handed, before).verdict, Verdict::pass);
  handed.steps[0].drawn[0] = "of all 0";
  EXPECT_EQ(judge_handed(ranks, handed, before).verdict, Verdict::inconclusive);
}

TEST(ProgramInputs, GradientsInOthersPlacesFailThoughOneDeviceDoesAlike) {
  const Ranks ranks = two("");
  ProgramRank one = made(0, 1, "");
  EXPECT_EQ(judge_steps(ranks, one).verdict, Verdict::pass);
  one.steps[0].misplaced = {"bias", "weight"};
  const ProgramFinding found = judge_steps(ranks, one);
  EXPECT_EQ(found.cause, ProgramCause::misplaced_gradients);
  EXPECT_EQ(found.entry, "gradient of bias");
}

TEST(ProgramInputs, AFactorThatClippingHidesIsTold) {
  Ranks ranks = two("");
  ProgramRank one = made(0, 1, "");
  const auto with_norms = [&](double of_ranks, double of_one, double off) {
    for (ProgramRank& rank : ranks) rank.steps[0].norms = {of_ranks};
    one.steps[0].norms = {of_one};
    return judge_clipped(ranks, one, 0, 0, off);
  };
  one.summed = true;
  const auto found = with_norms(3, 6, 1e-7);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->verdict, Verdict::fail);
  EXPECT_EQ(found->cause, ProgramCause::summed_loss);
  EXPECT_FALSE(with_norms(3, 3, 1e-7));  // what parts them is no factor
  EXPECT_FALSE(with_norms(3, 5, 1e-7));  // no known one
  EXPECT_FALSE(with_norms(3, 6, 1e-3));  // directions differ
  EXPECT_TRUE(with_norms(6, 3, 1e-7));   // never divided,
  for (ProgramRank& rank : ranks) rank.steps[0].ddp_forwards = 0;
  EXPECT_FALSE(with_norms(6, 3, 1e-7));  // or by a number that stands in the script
  one.steps[0].samples.pop_back();
  EXPECT_FALSE(with_norms(3, 6, 1e-7));
}

TEST(ProgramInputs, WhatRanksMadeOfSumsHasCauses) {
  const auto cause = [](auto change) {
    Ranks ranks = two("");
    for (ProgramRank& rank : ranks) change(&rank.steps[0], rank.rank);
    ranks[1].steps[0].grad_hashes[0] = "x";
    return replica_cause(ranks[0], ranks[1], 0, "weight");
  };
  EXPECT_EQ(cause([](ProgramStep* step, int64_t) { step->left_by_sums["weight"] = "s"; }),
            ProgramCause::changed_after_sum);
  EXPECT_EQ(cause([](ProgramStep* step, int64_t rank) {
              step->left_by_sums["weight"] = std::to_string(rank);
            }),
            ProgramCause::unknown);
  EXPECT_EQ(cause([](ProgramStep* step, int64_t rank) {
              if (rank == 1) step->sum_order = {1, 0};
            }),
            ProgramCause::summed_in_other_order);
  EXPECT_EQ(cause([](ProgramStep* step, int64_t) { step->by_grad = {"weight"}; }),
            ProgramCause::past_hooks);
  EXPECT_EQ(cause([](ProgramStep* step, int64_t) { step->unsynced_alone = {"weight"}; }),
            ProgramCause::used_unsynced_alone);
  EXPECT_EQ(cause([](ProgramStep* step, int64_t) {
              step->unsynced_alone = {"weight"};
              step->unsynced = true;
            }),
            ProgramCause::no_sync_at_step);
}

TEST(ProgramInputs, ASumThatIsClippedAndThenDividedIsClippedTooEarly) {
  Ranks ranks = two("");
  ProgramRank one = made(0, 1, "");
  EXPECT_EQ(factor_cause(ranks, one, 0, 0, 0.5), ProgramCause::divided_twice);
  for (ProgramRank& rank : ranks) rank.steps[0].norms = {6};
  one.steps[0].norms = {3};
  EXPECT_EQ(factor_cause(ranks, one, 0, 0, 0.5), ProgramCause::clipped_before_sum);
  one.steps[0].norms = {6};
  EXPECT_EQ(factor_cause(ranks, one, 0, 0, 0.5), ProgramCause::divided_twice);
}

}  // namespace
}  // namespace lockstep
