#include "sim/tools/program/judge_lists.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Rank 1 updates no bias. `models`: what each rank's model is in the second step.
Ranks ranks_with(const std::vector<std::string>& models) {
  Ranks ranks;
  for (const std::string& model : models) {
    ProgramStep step;
    step.line = "train.py:9";
    step.names = {"weight", "bias"};
    if (ranks.size() == 1) step.names.pop_back();
    step.grad_hashes = step.param_hashes = step.names;
    step.grads = step.params = std::vector<Sketch>(step.names.size(), std::vector<double>(5, 1.0));
    step.models_hash = "a";
    ProgramRank& rank = ranks.emplace_back();
    rank.rank = static_cast<int64_t>(ranks.size()) - 1;
    rank.ended = true;
    rank.steps = {step, step};
    rank.steps[1].models_hash = model;
  }
  return ranks;
}

TEST(ProgramLists, OfOtherParametersThatPartTheModelFail) {
  const ProgramFinding found = judge_replicas(ranks_with({"b", "c", "b"}));
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::other_parameters);
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.entry, "parameter bias");
  EXPECT_EQ(found.words,
            "the optimizer of rank 1 does not have it, and the models differ from then on");
}

TEST(ProgramLists, WhoseResultsAreSentAroundAccuseNobody) {
  EXPECT_EQ(judge_replicas(ranks_with({"b", "b", "b"})).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_replicas(ranks_with({"", "", ""})).verdict, Verdict::inconclusive);
  Ranks short_run = ranks_with({"b", "c", "b"});
  for (ProgramRank& rank : short_run) rank.steps.pop_back();
  EXPECT_EQ(judge_replicas(short_run).verdict, Verdict::inconclusive);
  Ranks apart = ranks_with({"b", "c", "b"});
  apart[2].steps[0].models_hash = "x";
  EXPECT_EQ(judge_replicas(apart).verdict, Verdict::inconclusive);
}

}  // namespace
}  // namespace lockstep
