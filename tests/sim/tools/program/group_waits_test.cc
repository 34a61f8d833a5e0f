#include "sim/tools/program/group_waits.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using RankList = std::vector<int64_t>;

// Of `ranks` ranks, of which some are in group "1".
ProgramRun run_of(size_t ranks, const RankList& members) {
  ProgramRun run;
  run.ranks.resize(ranks);
  run.outcome.ranks.resize(ranks);
  for (const int64_t rank : members) run.ranks[static_cast<size_t>(rank)].groups = {{"1", members}};
  return run;
}

void enter(ProgramRun* run, size_t rank, uint32_t call, int64_t time_ns, bool ends = true,
           int32_t group = 0) {
  Event event{};
  event.subject = group;
  event.sequence = call;
  event.time_ns = time_ns;
  event.kind = kGroupArrival;
  run->outcome.ranks[rank].events.push_back(event);
  event.kind = kGroupEnd;
  if (ends) run->outcome.ranks[rank].events.push_back(event);
}

TEST(GroupWaits, WhoNeverCameIsMissingThere) {
  ProgramRun run = run_of(7, {1, 3, 6});
  for (const size_t rank : {1, 3, 6}) enter(&run, rank, 1, 10);
  enter(&run, 3, 2, 30, false);
  enter(&run, 1, 2, 20, false);
  const auto wait = longest_group_wait(run);
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->members, (RankList{1, 3, 6}));
  EXPECT_EQ(wait->waiting, (RankList{1, 3}));
  EXPECT_EQ(wait->missing, RankList{6});
  EXPECT_EQ(wait->call, 2);
  EXPECT_EQ(wait->since_ns, 20);
}

TEST(GroupWaits, WhereAllStandInTheSameCallNobodyIsMissing) {
  ProgramRun run = run_of(3, {0, 2});
  enter(&run, 0, 1, 1, false);
  enter(&run, 2, 1, 2, false);
  EXPECT_FALSE(longest_group_wait(run));
}

TEST(GroupWaits, OneThatGotOutWaitsForNobody) {
  ProgramRun run = run_of(3, {0, 2});
  enter(&run, 0, 1, 1);  // a gather: not all wait for all
  EXPECT_FALSE(longest_group_wait(run));
}

TEST(GroupWaits, TheLongestOfSeveralAndNamesTellGroupsOfTheSameRanksApart) {
  ProgramRun run = run_of(3, {0, 1});
  run.ranks[0].groups = {{"1", {0, 1}}, {"2", {0, 1}}};
  run.ranks[1].groups = {{"2", {0, 1}}, {"1", {0, 1}}};  // in another order
  enter(&run, 0, 1, 50, false, 0);
  enter(&run, 1, 1, 40, false, 0);
  const auto wait = longest_group_wait(run);
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->waiting, RankList{1});
  EXPECT_EQ(wait->missing, RankList{0});
}

// Ranks 0 and 1 are group "1", ranks 0 and 2 group "2".
ProgramRun two_groups() {
  ProgramRun run = run_of(3, {});
  run.ranks[0].groups = {{"1", {0, 1}}, {"2", {0, 2}}};
  run.ranks[1].groups = {{"1", {0, 1}}};
  run.ranks[2].groups = {{"2", {0, 2}}};
  return run;
}
constexpr int64_t kEver = INT64_MAX;

TEST(GroupWaits, WhoIsMissingMayWaitItself) {
  ProgramRun run = two_groups();
  enter(&run, 2, 1, 10, false);     // for rank 0
  enter(&run, 0, 1, 20, false, 0);  // for rank 1
  const auto root = root_of_group_wait(run, 2, kEver);
  ASSERT_TRUE(root);
  EXPECT_EQ(root->missing, RankList{1});
  EXPECT_EQ(root->waiting, RankList{0});
  EXPECT_FALSE(root->circular);
  EXPECT_FALSE(root_of_group_wait(run, 1, kEver)) << "it waits in no group";
}

TEST(GroupWaits, RanksMayWaitForEachOther) {
  ProgramRun run = two_groups();
  run.ranks[1].groups.push_back({"3", {1, 2}});
  run.ranks[2].groups.push_back({"3", {1, 2}});
  enter(&run, 0, 1, 10, false, 0);  // for rank 1
  enter(&run, 1, 1, 20, false, 1);  // for rank 2
  enter(&run, 2, 1, 30, false, 0);  // for rank 0
  const auto root = root_of_group_wait(run, 1, kEver);
  ASSERT_TRUE(root);
  EXPECT_TRUE(root->circular);
  EXPECT_EQ(root->missing, RankList{2});
}

TEST(GroupWaits, WhoCameWhenItWasTooLateIsMissing) {
  ProgramRun run = two_groups();
  enter(&run, 0, 1, 10, false, 0);
  enter(&run, 1, 1, 90, false);
  EXPECT_FALSE(root_of_group_wait(run, 0, kEver));
  const auto root = root_of_group_wait(run, 0, 50);
  ASSERT_TRUE(root);
  EXPECT_EQ(root->missing, RankList{1});
  EXPECT_TRUE(root->late);
  EXPECT_FALSE(root->circular);
}

TEST(GroupWaits, WhatTheAgentDoesNotWriteIsLeftAlone) {
  ProgramRun run = run_of(2, {0, 1});
  run.ranks[0].groups = {{"1", {0, 1, 99, -7}}};
  enter(&run, 0, 1, 1, false);
  enter(&run, 0, 1, 1, false, 5);
  enter(&run, 0, 1, 1, false, -5);
  const auto wait = longest_group_wait(run);
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->missing, (RankList{1, 99, -7}));
}

}  // namespace
}  // namespace lockstep
