#include "sim/analysis/group_table.h"

#include <gmock/gmock.h>

#include "sim/analysis/metrics.h"
#include "sim/analysis/recorded_calls.h"
#include "sim/analysis/timeline.h"
#include "tests/sim/analysis/made_mesh.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

RunOutcome run_with(std::vector<std::vector<RankGroup>> groups) {
  RunOutcome outcome;
  outcome.plan.scenario.world_size = 4;
  outcome.groups = std::move(groups);
  return outcome;
}

std::vector<std::string> names_in(const RunOutcome& outcome) {
  std::vector<std::string> names;
  for (const RankGroup& group : groups_of(outcome).groups) names.push_back(group.name);
  return names;
}

TEST(GroupTable, HasEachGroupOnceInTheOrderOfTheirNumbers) {
  const GroupTable table = groups_of(made_mesh());
  ASSERT_EQ(table.groups.size(), 4u);
  EXPECT_THAT(names_in(made_mesh()), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(table.groups[2].ranks, ElementsAre(0, 2));
  EXPECT_EQ(table.groups[2].description, "column") << "one of its members tells";
  EXPECT_EQ(table.groups[2].timeout_ms, 700);
  EXPECT_EQ(table.place_of(0, 0), 2u);
  EXPECT_EQ(table.place_of(0, 1), 0u);
  EXPECT_EQ(table.place_of(2, 1), 2u);
  EXPECT_FALSE(table.place_of(2, 2));
  EXPECT_FALSE(table.place_of(2, -1));
  EXPECT_FALSE(table.place_of(9, 0));
  EXPECT_TRUE(table.has(2, 2));
  EXPECT_FALSE(table.has(2, 1));
}

TEST(GroupTable, NamesThatAreNoNumbersKeepTheOrderInWhichTheyAreTold) {
  EXPECT_THAT(names_in(run_with({{{"b7", {0, 1}}, {"2", {0, 2}}}, {{"b7", {0, 1}}}, {}, {}})),
              ElementsAre("b7", "2"));
}

TEST(GroupTable, GroupsOfOneNameThatShareNoRankKeepItAndOthersAreToldApart) {
  EXPECT_THAT(names_in(run_with({{{"5", {0, 1}}}, {}, {{"5", {2, 3}}}, {}})),
              ElementsAre("5", "5"));
  EXPECT_THAT(names_in(run_with({{{"5", {0, 1}}, {"5", {0, 2}}}, {}, {}, {{"5", {1, 3}}}})),
              ElementsAre("5 [0, 1]", "5 [0, 2]", "5 [1, 3]"));
  EXPECT_THAT(names_in(run_with({{{"0", {0, 1}}}})), ElementsAre("0 [0, 1]"))
      << "the group of all ranks has that name";
}

TEST(GroupTable, WhatNoAgentWritesIsLeftOut) {
  const RunOutcome outcome = run_with({{{"1", {}},
                                        {"1", {1, 2}},
                                        {"1", {1, 0}},
                                        {"1", {0, 0}},
                                        {"1", {0, 4}},
                                        {"1", {-1, 0}},
                                        {"1", {0, 3}}}});
  const GroupTable table = groups_of(outcome);
  EXPECT_EQ(table.groups.size(), 1u);
  EXPECT_FALSE(table.place_of(0, 5));
  EXPECT_EQ(table.place_of(0, 6), 0u);
}

TEST(GroupTable, TheTimelineHasCollectivesOfGroupsApart) {
  RunOutcome outcome = made_mesh();
  end_before(&outcome, 3, 0, 2);
  const Timeline timeline = timeline_of(outcome);
  EXPECT_EQ(timeline.groups.size(), 4u);
  EXPECT_EQ(timeline.collectives.size(), 6u) << "of all ranks";
  ASSERT_EQ(timeline.group_collectives.size(), 8u);
  const Collective& row = timeline.group_collectives[3];  // of ranks 2 and 3, in step 2
  EXPECT_EQ(row.group, 1u);
  EXPECT_EQ(row.sequence, 2u);
  EXPECT_EQ(row.step, 2);
  EXPECT_EQ(row.bytes, 16'000);
  EXPECT_EQ(row.bucket, -1);
  EXPECT_STREQ(operation_of(row), "all_reduce");
  EXPECT_TRUE(row.ranks[2].arrival_ns && row.ranks[2].end_ns);
  EXPECT_FALSE(row.ranks[3].arrival_ns || row.ranks[0].arrival_ns);
}

TEST(GroupTable, NoMetricCountsThem) {
  RunOutcome with = made_mesh(6), without = with;
  without.groups.clear();
  const Metrics a = metrics_of(timeline_of(with)), b = metrics_of(timeline_of(without));
  EXPECT_EQ(a.steps, b.steps);
  ASSERT_FALSE(a.ranks.empty());
  for (size_t rank = 0; rank < a.ranks.size(); ++rank)
    EXPECT_EQ(a.ranks[rank].mean.wait_ms, b.ranks[rank].mean.wait_ms);
}

TEST(GroupTable, ARanksCallsAreInTheOrderInWhichItMadeThem) {
  const RunOutcome outcome = made_mesh();
  const auto calls = recorded_calls(outcome, groups_of(outcome), 0);
  ASSERT_EQ(calls.size(), 10u);
  EXPECT_TRUE(std::is_sorted(calls.begin(), calls.end(),
                             [](auto& a, auto& b) { return a.called_ns < b.called_ns; }));
  EXPECT_FALSE(calls[2].group);
  EXPECT_EQ(calls[3].group, 0u);
  EXPECT_EQ(calls[4].group, 2u);
  EXPECT_EQ(calls[4].sequence, 1u);
  EXPECT_EQ(calls[4].elements_in, 4000);
  EXPECT_GT(calls[4].ended_ns, calls[4].called_ns);
  EXPECT_EQ(calls[8].group, 0u);
  EXPECT_EQ(calls[8].sequence, 2u);
}

// What the agent of an older version writes.
TEST(GroupTable, ACallOfWhichNothingIsKnownIsNone) {
  RunOutcome outcome = made_mesh();
  for (Event& event : outcome.ranks[0].events)
    if (event.kind == kGroupArrival) event.value = 0;
  EXPECT_EQ(recorded_calls(outcome, groups_of(outcome), 0).size(), 6u);
  EXPECT_EQ(timeline_of(outcome).group_collectives.size(), 8u) << "it was entered";
}

TEST(GroupTable, OfAProgramBytesAreWhatARankGave) {
  RunOutcome outcome = run_with({{{"1", {0, 3}}}});
  outcome.own_bytes = true;
  outcome.ranks.resize(4);
  // Operation, bytes; then elements in and out, -1: not known.
  const std::vector<std::array<int64_t, 4>> expected = {
      {1, 64, 8, 8}, {2, 64, 8, 8},  {2, 0, -1, -1}, {3, 64, 8, 16}, {4, 64, 8, 4}, {5, 64, 8, 4},
      {5, 0, 0, -1}, {6, 64, 8, -1}, {7, 0, 0, 0},   {8, 64, 8, -1}, {9, 64, 8, 8}};
  for (uint32_t i = 0; i < expected.size(); ++i)
    outcome.ranks[0].events.push_back(
        {i, i + 1, kGroupArrival, static_cast<uint16_t>(Phase::backward), 1, 0,
         pack_collective(static_cast<uint8_t>(expected[i][0]), 7, expected[i][1])});
  const auto calls = recorded_calls(outcome, groups_of(outcome), 0);
  ASSERT_EQ(calls.size(), expected.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].elements_in.value_or(-1), expected[i][2]) << calls[i].operation;
    EXPECT_EQ(calls[i].elements_out.value_or(-1), expected[i][3]) << calls[i].operation;
  }
  EXPECT_EQ(calls.back().operation, "reduce");
}

}  // namespace
}  // namespace lockstep
