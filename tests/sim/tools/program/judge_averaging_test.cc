#include "sim/tools/program/judge_averaging.h"

#include <gtest/gtest.h>

#include "sim/tools/program/judge.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Two ranks that part in step 1, and begin step 2 with what `moved` says.
Ranks ranks_with(double moved) {
  Ranks ranks;
  for (const double own : {1.0, 3.0}) {
    ProgramStep step;
    step.names = {"weight"};
    step.grad_hashes = step.param_hashes = {std::to_string(own)};
    step.grads = {std::vector<double>(5, own)};
    step.params = {std::vector<double>{own, own, own, own, own}};
    ProgramRank& rank = ranks.emplace_back();
    rank.rank = static_cast<int64_t>(ranks.size()) - 1;
    rank.ended = true;
    rank.steps = {step, step};
    rank.steps[1].before_hash = "same";
    rank.steps[1].moved = {std::vector<double>(5, moved)};
  }
  return ranks;
}

TEST(ProgramAveraging, OfParametersIsNoMistakeOfSynchronization) {
  const ProgramFinding found = judge_replicas(ranks_with(2));
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_EQ(found.words,
            "ranks update by gradients of their own and average their parameters, before step 2 "
            "for the first time, 1 time in all: no training of one device");
}

TEST(ProgramAveraging, WhatIsNoMeanOfAllRanksIsOne) {
  EXPECT_EQ(judge_replicas(ranks_with(1)).verdict, Verdict::fail) << "a broadcast";
  Ranks apart = ranks_with(2);
  apart[1].steps[1].before_hash = "other";
  EXPECT_EQ(judge_replicas(apart).verdict, Verdict::fail);
  Ranks still = ranks_with(2);
  for (ProgramRank& rank : still) rank.steps[1].moved.clear();
  EXPECT_EQ(judge_replicas(still).verdict, Verdict::fail);
}

}  // namespace
}  // namespace lockstep
