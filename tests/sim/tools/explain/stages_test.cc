#include "sim/tools/explain/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/late_arrivals.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Jobs whose sends and receives are in no dump: what shows that there are stages all the same.

RankList ranks(std::vector<int64_t> all) {
  return std::make_shared<const std::vector<int64_t>>(std::move(all));
}

// Four ranks call two collectives a step, after some before the steps; those of `late` come late to
// the second.
std::vector<FlightDump> made(const RankSet& late, int64_t transfers_a_step = 0) {
  std::vector<FlightDump> dumps(4);
  for (int64_t rank = 0; rank < 4; ++rank) {
    FlightDump& dump = dumps[static_cast<size_t>(rank)];
    dump.rank = rank;
    dump.groups["0"] = {"default_pg", nullptr};
    for (int64_t call = 0; call < 29; ++call) {
      const int64_t step = (call - 5) / 2;
      FlightEntry entry;
      entry.group = "0";
      entry.operation = call < 5 ? "broadcast" : "all_reduce";
      entry.sizes = "[[" + std::to_string(call < 5 ? 2 : 8 + call % 2) + "]]";
      entry.record = call;
      entry.sequence = call + 1;
      entry.gloo = transfers_a_step > 0;
      entry.unrecorded = call < 5 ? 0 : transfers_a_step * (step + 1);
      const bool waits = call >= 5 && call % 2 == 0 && late.contains(rank);
      entry.created_ns = 1'000'000'000 + call * 50'000'000 + (call * 7 + rank * 3) % 5 * 100'000 +
                         (waits ? 20'000'000 : 0);
      dump.entries.push_back(entry);
    }
  }
  return dumps;
}

FlightFinding found_in(const std::vector<FlightDump>& dumps) {
  FlightFinding found;
  find_late_arrivals(dumps, &found);
  return found;
}

void expect_by_design(const std::vector<FlightDump>& dumps, const RankSet& late,
                      const std::string& why) {
  const FlightFinding found = found_in(dumps);
  EXPECT_FALSE(found.decided) << why;
  EXPECT_EQ(found.candidates, late) << why;
  EXPECT_TRUE(found.victims.empty()) << why;
  EXPECT_THAT(found.missing, ElementsAre(HasSubstr(why)));
}

TEST(Stages, WithoutASignOfThemALateRankIsNamed) {
  EXPECT_EQ(found_in(made({3})).guilty, RankSet{3});
}

// Gloo's recorder leaves sends and receives out; "op_id" counts them.
TEST(Stages, WhatGlooCountsAndDoesNotRecordTellsOfThem) {
  expect_by_design(made({3}, 4), {3}, "rank 0 made 48 sends and receives, which Gloo counts");
  std::vector<FlightDump> before = made({3});
  for (FlightDump& dump : before)
    for (FlightEntry& entry : dump.entries) {
      entry.unrecorded = 9;  // all of them before the first call
      entry.record += 100;
      entry.sequence += 100;
    }
  EXPECT_EQ(found_in(before).guilty, RankSet{3});
}

TEST(Stages, TheNameOfAGroupTellsOfThem) {
  for (const char* name : {"PIPELINE_MODEL_PARALLEL_GROUP", "mesh_pp"}) {
    std::vector<FlightDump> dumps = made({3});
    dumps[3].groups["7"] = {name, ranks({1, 3})};
    expect_by_design(dumps, {3}, "is a pipeline's by its name");
    dumps[3].groups["7"].ranks = ranks({3});
    EXPECT_EQ(found_in(dumps).guilty, RankSet{3});
  }
  for (const char* name : {"mesh_dp", "appraisal", "undefined"}) {
    std::vector<FlightDump> dumps = made({3});
    dumps[3].groups["7"] = {name, ranks({1, 3})};
    EXPECT_EQ(found_in(dumps).guilty, RankSet{3}) << name;
  }
}

TEST(Stages, CallsOfAGroupThatNoDumpHoldsTellOfThem) {
  std::vector<FlightDump> dumps = made({3});
  dumps[3].groups["7"] = {"undefined", ranks({0, 1, 2, 3})};
  dumps[3].status["7"] = {96, 96};
  expect_by_design(dumps, {3}, "rank 3 made 96 calls of group 7 (undefined), none of which");
  dumps[3].status["7"] = {1, 1};
  EXPECT_EQ(found_in(dumps).guilty, RankSet{3});
}

// A stage of two ranks, which average their gradients, among eight.
TEST(Stages, RanksThatAreLateTogetherTellOfThem) {
  std::vector<FlightDump> dumps = made({});
  for (int64_t rank = 4; rank < 8; ++rank) {
    dumps.push_back(made(rank > 5 ? RankSet{0} : RankSet{}).at(0));
    dumps.back().rank = rank;
  }
  EXPECT_EQ(found_in(dumps).guilty, (RankSet{6, 7})) << "two of a host, say";
  for (FlightDump& dump : dumps) {
    FlightEntry entry = dump.entries.back();
    entry.group = "dp " + std::to_string(dump.rank / 2);
    entry.record += 1;
    dump.entries.push_back(entry);
  }
  expect_by_design(dumps, {6, 7},
                   "they are late together, like ranks of one stage, and make up group");
  for (FlightEntry& entry : dumps[7].entries)
    if (entry.group != "0") entry.group = "dp 2";
  EXPECT_EQ(found_in(dumps).guilty, (RankSet{6, 7}));
}

std::string call_of(int64_t number, int64_t counted, const std::string& library) {
  return R"({"record_id":)" + std::to_string(number - 1) +
         R"(,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":)" +
         std::to_string(number) + R"(,"p2p_seq_id":0,"op_id":)" + std::to_string(counted) +
         R"(,"profiling_name":")" + library +
         R"(:all_reduce","time_created_ns":1700000000000000000,"input_sizes":[[8]],)"
         R"("output_sizes":[[8]],"input_dtypes":["Float"],"output_dtypes":["Float"],)"
         R"("state":"scheduled","retired":true,"timeout_ms":3000,"is_p2p":false})";
}

FlightDump read(int64_t rank, const std::string& calls) {
  RankLists lists;
  const auto dump =
      flight_dump_of(R"({"version":"2.10","pg_config":{"":{"name":"","desc":"","ranks":"[0, 1]"}},)"
                     R"("pg_status":{},"entries":[)" +
                         calls + "]}",
                     "_dump_" + std::to_string(rank) + ".json", &lists);
  EXPECT_TRUE(dump);
  return dump ? dump.value() : FlightDump{};
}

// It may wait in a receive for the one that waits for it.
TEST(Stages, WhoMissedACollectiveOfGlooMayWaitInAReceive) {
  for (const int64_t transfers : {0, 4}) {
    const std::string first = call_of(1, 1, "gloo") + "," + call_of(2, 2 + transfers, "gloo");
    const std::vector<FlightDump> dumps = {
        read(0, first), read(1, first + "," + call_of(3, 3 + transfers, "gloo"))};
    EXPECT_EQ(unrecorded_transfers(dumps[1]), transfers);
    const FlightFinding found = attribute(dumps);
    EXPECT_EQ(found.decided, transfers == 0);
    EXPECT_EQ(found.guilty, transfers == 0 ? RankSet{0} : RankSet{});
    EXPECT_EQ(found.candidates, transfers == 0 ? RankSet{} : RankSet{0});
  }
}

// Of a healthy job and of one whose ranks wait in receives the dumps are alike.
TEST(Stages, WhereNobodyIsMissingSomebodyMayWaitInAReceive) {
  for (const int64_t transfers : {0, 4}) {
    JobEvidence job;
    for (int64_t rank = 0; rank < 2; ++rank)
      job.dumps.push_back(
          read(rank, call_of(1, 1, "gloo") + "," + call_of(2, 2 + transfers, "gloo")));
    const FlightFinding found = attribute_job(job);
    EXPECT_EQ(found.decided, transfers == 0);
    EXPECT_TRUE(found.guilty.empty() && found.candidates.empty());
    if (transfers > 0) {
      EXPECT_THAT(found.missing, ElementsAre(HasSubstr("rank 0 made 4 of")));
    }
  }
}

// A rank that a launcher ended before it left a dump may have waited in a receive.
TEST(Stages, WhoWasEndedWithoutADumpMayHaveWaitedInAReceive) {
  for (const int64_t transfers : {0, 4}) {
    const std::string calls = call_of(1, 1, "gloo") + "," + call_of(2, 2 + transfers, "gloo");
    JobEvidence job;
    job.dumps = {read(0, calls)};
    LogEvent waited, cut;
    waited.rank = 0;
    waited.kind = LogEventKind::timed_out;
    cut.rank = 1;
    cut.kind = LogEventKind::stopped;
    cut.signal = 15;
    job.events = {waited, cut};
    job.logged = {0, 1};
    job.logs = 1;
    EXPECT_EQ(attribute_job(job).guilty, transfers == 0 ? RankSet{1} : RankSet{}) << transfers;
  }
}

// NCCL's recorder keeps sends and receives, and counts the parts of what is coalesced.
TEST(Stages, OfNcclNothingIsMissing) {
  EXPECT_EQ(unrecorded_transfers(read(0, call_of(1, 1, "nccl") + "," + call_of(2, 9, "nccl"))), 0);
}

}  // namespace
}  // namespace lockstep
