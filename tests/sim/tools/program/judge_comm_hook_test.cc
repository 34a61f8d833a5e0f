#include "sim/tools/program/judge_comm_hook.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Two ranks, three steps: error 0.01, 0.02, 0.03, of which nothing is made up for.
Ranks measured() {
  Ranks ranks(2);
  for (ProgramRank& rank : ranks) {
    rank.rank = &rank - ranks.data();
    for (int step = 1; step <= 3; ++step) {
      ProgramStep& made = rank.steps.emplace_back();
      made.line = "train.py:9";
      made.comm_hook = HookedBuckets{.buckets = 2,
                                     .error = 0.01 * step,
                                     .owed = 0.1 * step,
                                     .control_error = 0.5,
                                     .control_owed = 0.5 * step,
                                     .hash = "a"};
    }
  }
  return ranks;
}

TEST(ProgramCommHook, WithinItsBoundPasses) {
  const ProgramFinding found = judge_comm_hook(measured(), {.error = 0.03, .owed = 0.31});
  EXPECT_EQ(found.verdict, Verdict::pass);
  EXPECT_EQ(found.steps, 3);
  EXPECT_EQ(found.words,
            "error 0.03 of the norm of the mean gradient at most, bound 0.03; owed 0.3 of the norm "
            "of the mean gradient at most, bound 0.31");
}

TEST(ProgramCommHook, BeyondABoundFailsAtItsStep) {
  ProgramFinding found = judge_comm_hook(measured(), {.error = 0.015, .owed = {}});
  EXPECT_EQ(found.verdict, Verdict::fail);
  EXPECT_EQ(found.cause, ProgramCause::hook_beyond_bound);
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.line, "train.py:9");
  found = judge_comm_hook(measured(), {.error = {}, .owed = 0.25});
  EXPECT_EQ(found.step, 3);
  Ranks ranks = measured();
  for (ProgramRank& rank : ranks) rank.steps[0].comm_hook->error = kInfinite;
  EXPECT_EQ(judge_comm_hook(ranks, {.error = 1e3, .owed = {}}).step, 1);
}

TEST(ProgramCommHook, WithOtherResultsOnOneRankFails) {
  Ranks ranks = measured();
  ranks[1].steps[1].comm_hook->hash = "b";
  const ProgramFinding found = judge_comm_hook(ranks, {.error = 1, .owed = {}});
  EXPECT_EQ(found.cause, ProgramCause::hook_results_differ);
  EXPECT_EQ(found.step, 2);
}

TEST(ProgramCommHook, ThatNotAllRanksMeasuredIsUndecided) {
  Ranks ranks = measured();
  ranks[1].steps[1].comm_hook.reset();
  EXPECT_EQ(judge_comm_hook(ranks, {.error = 1, .owed = {}}).verdict, Verdict::inconclusive);
  ranks = measured();
  ranks[1].steps.pop_back();
  EXPECT_EQ(judge_comm_hook(ranks, {.error = 1, .owed = {}}).verdict, Verdict::inconclusive);
  ranks = measured();
  for (ProgramRank& rank : ranks)
    for (ProgramStep& step : rank.steps) step.comm_hook.reset();
  EXPECT_EQ(judge_comm_hook(ranks, {.error = 1, .owed = {}}).verdict, Verdict::inconclusive);
}

TEST(ProgramCommHook, ABoundWithinWhichARankMayBeMissingShowsNothing) {
  EXPECT_TRUE(comm_hook_control_fails(measured(), {.error = 0.4, .owed = {}}));
  EXPECT_FALSE(comm_hook_control_fails(measured(), {.error = 0.6, .owed = {}}));
  EXPECT_TRUE(comm_hook_control_fails(measured(), {.error = 0.6, .owed = 1.4}));
  EXPECT_NE(without_last_rank(measured()[0]).find("below 1.5 as owed"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
