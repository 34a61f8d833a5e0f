// What a script has or draws on each rank by itself, and nobody is accused of.
#include <gtest/gtest.h>

#include "sim/tools/program/judge.h"
#include "tests/sim/tools/program/judged_ranks.h"

namespace lockstep {
namespace {

using judged::changed;
using judged::one;
using judged::Ranks;
using judged::sketch_of;
using judged::three;

TEST(ProgramJudge, StateThatEachRankKeepsOfItsOwnParametersIsNotCompared) {
  Ranks ranks = three();
  ranks[1].steps[1].state_hash = "other";
  EXPECT_EQ(judge_replicas(ranks).entry, "optimizer state");
  ranks[1].steps[1].state_keys = "others";
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::pass);
}

TEST(ProgramJudge, ASumThatIsDividedByAWrittenNumberOfSamplesIsNotAccused) {
  const auto scaled = [](double sum_scale) {
    return changed([=](ProgramStep* step) {
      step->grads[0] = sketch_of(1.0 / 3);
      step->sum_scale = sum_scale;
    });
  };
  ProgramRank alone = one();
  alone.summed = true;
  alone.steps[1].sum_scale = 1;  // a rank has one sample
  const ProgramFinding found = judge_one_device(scaled(1), alone);
  EXPECT_EQ(found.verdict, Verdict::inconclusive) << found.words;
  EXPECT_NE(found.words.find("len() of the batch"), std::string::npos) << found.words;
  alone.steps[1].sum_scale = 0.5;
  EXPECT_EQ(judge_one_device(scaled(0.5), alone).cause, ProgramCause::summed_loss);
}

TEST(ProgramJudge, HooksThatGiveRanksOtherResultsAreTold) {
  Ranks ranks = three();
  ranks[1].steps[1].grad_hashes[0] = ranks[1].steps[1].param_hashes[0] = "other";
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::unknown);
  for (auto& rank : ranks) rank.comm_hook = "hook";
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::hook_results_differ);
}

TEST(ProgramJudge, ASumOfSumsThatIsTooLargeIsScaled) {
  const Ranks ranks = changed([](ProgramStep* step) {
    step->changed = step->names;
    step->grads = {sketch_of(2), sketch_of(1)};
  });
  EXPECT_EQ(judge_one_device(ranks, one()).cause, ProgramCause::scaled_by_ranks);
}

TEST(ProgramJudge, AnUpdateThatDrawsIsAccusedWhereRanksDrawApart) {
  ProgramRank drew = one();
  drew.steps[1].drew_in_step = true;
  Ranks ranks = changed([](ProgramStep* step) {
    step->drew_in_step = true;
    step->params[0] = sketch_of(5);
  });
  const ProgramFinding alike = judge_one_device(ranks, drew);
  EXPECT_EQ(alike.verdict, Verdict::inconclusive) << alike.words;
  EXPECT_NE(alike.words.find("the update draws random numbers"), std::string::npos) << alike.words;
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::pass);
  ranks[1].steps[1].param_hashes[0] = "other";
  EXPECT_EQ(judge_one_device(ranks, drew).cause, ProgramCause::drawn_in_update);
  EXPECT_EQ(judge_replicas(ranks).cause, ProgramCause::drawn_in_update);
}

}  // namespace
}  // namespace lockstep
