#include "sim/tools/explain/flight_timeline.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;
using testing::HasSubstr;

RankList ranks_in_group(std::vector<int64_t> ranks) {
  return std::make_shared<std::vector<int64_t>>(std::move(ranks));
}

FlightEntry call(const std::string& group, int64_t sequence, bool done, int64_t at_ms) {
  FlightEntry made;
  made.record = made.sequence = sequence;
  made.group = group;
  made.operation = "all_reduce";
  made.created_ns = at_ms * 1'000'000;
  made.done = done;
  return made;
}

// Ranks 0 and 1 wait in collective 3, which rank 2 never called; ranks 0 and 2 have a group, too.
std::vector<FlightDump> hang() {
  std::vector<FlightDump> job(3);
  for (int64_t rank = 0; rank < 3; ++rank) {
    FlightDump& dump = job[static_cast<size_t>(rank)];
    dump.rank = rank;
    dump.groups["0"] = {"default_pg", ranks_in_group({0, 1, 2})};
    if (rank != 1) {
      dump.groups["1"] = {"dp", ranks_in_group({0, 2})};
      dump.entries.push_back(call("1", 1, true, 900 + rank));
    }
    for (int64_t sequence = 1; sequence <= 2; ++sequence)
      dump.entries.push_back(call("0", sequence, true, 1000 * sequence + 10 * rank));
    if (rank < 2) dump.entries.push_back(call("0", 3, false, 3000 + rank));
  }
  return job;
}

json picture_of(const std::vector<FlightDump>& job, int64_t most = 200'000) {
  const auto text = flight_timeline(job, attribute(job), most);
  return text ? json::parse(*text) : json();
}

TEST(FlightTimeline, MarksTheGuiltyRankAndShowsWhereItNeverCame) {
  const json seen = picture_of(hang());
  EXPECT_EQ(seen["world_size"], 3);
  EXPECT_EQ(seen["focus"]["ranks"], json::parse("[2]"));
  EXPECT_EQ(seen["focus"]["what"], "never entered");
  ASSERT_EQ(seen["collectives"].size(), 4u);
  const json last = seen["collectives"][3];
  EXPECT_EQ(last[0], 3);
  EXPECT_EQ(last[1], "all_reduce of default_pg");
  EXPECT_EQ(last[5], json::parse("[null, 2100000, null, null]"));  // ticks of 1 us since 900 ms
  EXPECT_EQ(last[6], json::parse("[null, 2101000, null, null]"));
  EXPECT_TRUE(last[7].is_null());
}

TEST(FlightTimeline, DrawsWhatIsDoneToItsLastRank) {
  const json first = picture_of(hang())["collectives"][1];
  EXPECT_EQ(first[5], json::parse("[null, 100000, null, 120000]"));
  EXPECT_EQ(first[7], json::parse("[null, 120000, null, 120000]"));
}

TEST(FlightTimeline, WhoIsNotInAGroupIsNotSaidToBeMissing) {
  const json group = picture_of(hang())["collectives"][0];
  EXPECT_EQ(group[1], "all_reduce of dp");
  EXPECT_EQ(group[6], 0);
}

TEST(FlightTimeline, WhatARingHasLostIsNotSaidToBeMissing) {
  auto job = hang();
  job[1].entries.erase(job[1].entries.begin());  // its first collective
  const json seen = picture_of(job);
  EXPECT_EQ(seen["collectives"][1][6], 0);
}

TEST(FlightTimeline, OfGlooWhoCalledSomethingLaterHasLeft) {
  auto job = hang();
  for (FlightDump& dump : job)
    for (FlightEntry& entry : dump.entries) {
      entry.gloo = true;
      entry.done = false;
    }
  const json seen = picture_of(job);
  EXPECT_FALSE(seen["collectives"][1][5][3].is_null());
  EXPECT_TRUE(seen["collectives"][3][5][3].is_null());
}

TEST(FlightTimeline, LeavesOutTheOldestCallsOfManyAndSaysSo) {
  const json seen = picture_of(hang(), 6);
  ASSERT_EQ(seen["collectives"].size(), 2u);
  EXPECT_EQ(seen["collectives"][1][0], 3);
  EXPECT_THAT(seen["note"].get<std::string>(), HasSubstr("2 earlier calls are left out"));
}

TEST(FlightTimeline, OfARankThatOnlyItsNameMakesSoLargeThereIsNone) {
  auto job = hang();
  job[2].rank = int64_t{1} << 40;
  EXPECT_TRUE(picture_of(job).is_null());
}

// Hosts whose clocks are minutes apart: what was called together is drawn together.
TEST(FlightTimeline, ClocksThatAreApartAreSetRight) {
  auto job = hang();
  for (FlightEntry& entry : job[1].entries) entry.created_ns += int64_t{900} * 1'000'000'000;
  const json seen = picture_of(job);
  const json set_right = seen["collectives"][3][6];
  const int64_t called = set_right[1];
  EXPECT_NEAR(called, picture_of(hang())["collectives"][3][6][1].get<int64_t>(), 20'000);
  EXPECT_THAT(seen["note"].get<std::string>(), HasSubstr("+900.0 s (rank 1)"));
  EXPECT_THAT(picture_of(hang())["note"].get<std::string>(), HasSubstr("its own clock."));
}

// Ranks 0 and 2 have no collective in common, but each some with rank 1.
TEST(FlightTimeline, ClocksAreSetRightThroughOtherRanks) {
  std::vector<FlightDump> job(3);
  for (int64_t rank = 0; rank < 3; ++rank) {
    FlightDump& dump = job[static_cast<size_t>(rank)];
    dump.rank = rank;
    const int64_t ahead = 60'000 * rank;  // ms
    for (const auto& [name, first] : {std::pair<std::string, int64_t>("a", 0), {"b", 1}}) {
      if (rank != first && rank != first + 1) continue;
      dump.groups[name] = {"pair", ranks_in_group({first, first + 1})};
      for (int64_t sequence = 1; sequence <= 3; ++sequence)
        dump.entries.push_back(call(name, sequence, true, 1000 * sequence + ahead));
    }
  }
  const json seen = picture_of(job);
  for (const json& row : seen["collectives"])
    for (size_t rank = 5; rank < 8; ++rank)
      if (row[rank].is_array()) {
        EXPECT_EQ(row[rank][1], 1'000'000 * (row[0].get<int64_t>() - 1));
      }
}

// A rank that is late by less than a second may be late.
TEST(FlightTimeline, WhoIsLateIsDrawnLate) {
  auto job = hang();
  for (FlightEntry& entry : job[1].entries) entry.created_ns += 700'000'000;
  EXPECT_EQ(picture_of(job)["collectives"][3][6][1], 2'801'000);
}

TEST(FlightTimeline, OfNoDumpOrNoTimeThereIsNone) {
  EXPECT_TRUE(picture_of({}).is_null());
  auto job = hang();
  for (FlightDump& dump : job)
    for (FlightEntry& entry : dump.entries) entry.created_ns = 0;
  EXPECT_TRUE(picture_of(job).is_null());
}

}  // namespace
}  // namespace lockstep
