#include "sim/tools/program/broken_off.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

ProgramRunResult failed(const std::string& kind, std::optional<int64_t> rank) {
  ProgramRunResult result;
  result.ranks.resize(3);
  result.failure.emplace();
  result.failure->kind = kind;
  result.failure->rank = rank;
  return result;
}

TEST(BrokenOff, SilenceAndTimeoutsAreNotCertain) {
  ProgramRun run;
  EXPECT_FALSE(is_certain(run, failed("hang", 1)));
  EXPECT_FALSE(is_certain(run, failed("timeout", 1)));
  EXPECT_FALSE(is_certain(run, ProgramRunResult()));
  run.deadlock = true;
  EXPECT_TRUE(is_certain(run, failed("hang", 1)));
  EXPECT_FALSE(is_certain(run, ProgramRunResult()));
  ProgramRunResult undecided = failed("hang", 1);
  undecided.why = "nobody can be named";
  EXPECT_FALSE(is_certain(run, undecided));
}

TEST(BrokenOff, WhatEveryRankDoesAlikeIsNoRanks) {
  const ProgramRun run;
  EXPECT_FALSE(is_certain(run, failed("exception", std::nullopt)));
  EXPECT_TRUE(is_certain(run, failed("exception", 2)));
  EXPECT_FALSE(is_certain(run, failed("exit", std::nullopt)));
  EXPECT_TRUE(is_certain(run, failed("rejected", std::nullopt)));
}

TEST(BrokenOff, WhoDiesAfterItHasTrainedIsNotAccused) {
  ProgramRun run;
  run.outcome.ranks.resize(3);
  run.outcome.plan.scenario.world_size = 3;
  for (size_t rank = 0; rank < 3; ++rank) run.outcome.ranks[rank].rank = static_cast<int64_t>(rank);
  EXPECT_TRUE(is_certain(run, failed("crash", 1)));
  Event event{};
  event.kind = static_cast<uint16_t>(EventKind::finished);
  run.outcome.ranks[1].events.push_back(event);
  EXPECT_FALSE(is_certain(run, failed("crash", 1)));
  ProgramRunResult died = failed("crash", 2);
  died.failure->signal = 11;
  ProcessEnd end;
  end.rank = 0;
  end.signal = 9;
  run.outcome.ends.push_back(end);
  EXPECT_TRUE(is_certain(run, died));
  run.outcome.ends[0].signal = 11;
  EXPECT_FALSE(is_certain(run, died)) << "rank 0 died of the same";
}

TEST(BrokenOff, OneDeviceThatEndsAlikeExcusesTheRanks) {
  ProgramRunResult ranks = failed("exception", 2), one = failed("exception", 0);
  EXPECT_TRUE(ends_by_itself(ranks));
  EXPECT_FALSE(ends_by_itself(failed("hang", 2)));
  ranks.ranks[2].error = "KeyError: 'labels of 7'";
  ranks.ranks[2].line = one.ranks[0].line = "train.py:9";
  one.ranks[0].error = "KeyError: 'labels of 3'";
  EXPECT_TRUE(ends_alike(ranks, one));
  one.ranks[0].line = "train.py:4";
  EXPECT_FALSE(ends_alike(ranks, one));
  one.ranks[0].line = "train.py:9";
  one.ranks[0].error = "ValueError: bad";
  EXPECT_FALSE(ends_alike(ranks, one));
  EXPECT_FALSE(ends_alike(ranks, ProgramRunResult()));
}

TEST(BrokenOff, RanksThatAllFindTheyAreNotAlikeAreNoMatterOfOneDevice) {
  ProgramRunResult ranks = failed("rejected", std::nullopt), one = failed("exception", 0);
  EXPECT_FALSE(ends_by_itself(ranks));
  ranks.disagree = true;
  EXPECT_TRUE(ends_by_itself(ranks));
  ranks.ranks[0].error = "RuntimeError: rank 0 has 6, rank 1 has 4";
  EXPECT_FALSE(ends_alike(ranks, one));
  one.ranks[0].error = "RuntimeError: rank 0 has 6";
  EXPECT_TRUE(ends_alike(ranks, one));
}

}  // namespace
}  // namespace lockstep
