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
            "ranks update with their own gradients and average their parameters, first before step "
            "2, 1 time in all: this is not training on one device");
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

// As an outer optimizer makes them of what all ranks have done; it steps in between.
TEST(ProgramAveraging, ByAnOuterOptimizerIsMeant) {
  Ranks ranks = ranks_with(2.7);
  for (ProgramRank& rank : ranks) {
    ProgramStep outer = rank.steps[0];
    outer.optimizer = 1;
    outer.names = {"parameter 0"};
    rank.steps.insert(rank.steps.begin() + 1, outer);
  }
  const ProgramFinding found = judge_replicas(ranks);
  EXPECT_EQ(found.verdict, Verdict::inconclusive) << found.words;
  EXPECT_NE(found.words.find("a combination of all their parameters"), std::string::npos)
      << found.words;
  for (ProgramRank& rank : ranks) rank.steps.back().model_loads = 1;  // of a file, that is
  EXPECT_EQ(judge_replicas(ranks).verdict, Verdict::fail);
}

constexpr double kLeft[3][3][5] = {{{1, 2, 0, 1, 2}, {0, 1, 3, 1, 3}, {2, 2, 1, 0, 3}},
                                   {{2, 0, 1, 1, 2}, {1, 1, 0, 2, 2}, {0, 1, 1, 3, 3}},
                                   {{0, 1, 1, 3, 3}, {2, 0, 1, 1, 2}, {1, 3, 0, 1, 3}}};

// Three ranks that part in step 1; what each then has of its neighbour's first two parameters, and
// its own third one.
Ranks neighbours(double part) {
  Ranks ranks;
  for (size_t r = 0; r < 3; ++r) {
    ProgramStep step;
    step.names = {"body", "bias", "head"};
    step.grad_hashes = step.param_hashes = std::vector<std::string>(3, std::to_string(r));
    step.grads = std::vector<Sketch>(3, std::vector<double>(5, 1.0));
    ProgramStep next = step;
    next.before_hash = std::to_string(r);
    for (size_t p = 0; p < 3; ++p) {
      std::vector<double> own(kLeft[r][p], kLeft[r][p] + 5), mixed = own;
      for (size_t k = 0; p < 2 && k < 5; ++k)
        mixed[k] = (1 - part) * own[k] + part * kLeft[(r + 1) % 3][p][k];
      step.params.push_back(own);
      next.moved.push_back(mixed);
    }
    next.params = step.params;
    ProgramRank& rank = ranks.emplace_back();
    rank.rank = static_cast<int64_t>(r);
    rank.ended = true;
    rank.steps = {step, next};
  }
  return ranks;
}

TEST(ProgramAveraging, WithNeighboursOrOfSomeParametersIsMeant) {
  const ProgramFinding found = judge_replicas(neighbours(0.5));
  EXPECT_EQ(found.verdict, Verdict::inconclusive);
  EXPECT_EQ(found.words,
            "ranks update with their own gradients and mix parameters with other ranks, first "
            "before step 2, 1 time in all: this is not training on one device");
}

TEST(ProgramAveraging, WhoTakesAnotherRanksParametersMixesNothing) {
  EXPECT_EQ(judge_replicas(neighbours(1)).verdict, Verdict::fail);
  EXPECT_EQ(judge_replicas(neighbours(0)).verdict, Verdict::fail);
  EXPECT_EQ(judge_replicas(neighbours(1.5)).verdict, Verdict::fail) << "a weight below 0";
}

}  // namespace
}  // namespace lockstep
