#include "sim/tools/explain/namesakes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sim/tools/explain/job_attribution.h"

namespace lockstep {
namespace {

// Of a mesh of two by two: rows "1", of which all ranks made theirs in one call, and all of them.
// Each rank completed two collectives of its row.
std::vector<FlightDump> mesh() {
  const auto all = std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 1, 2, 3});
  std::vector<FlightDump> job(4);
  for (int64_t rank = 0; rank < 4; ++rank) {
    FlightDump& dump = job[static_cast<size_t>(rank)];
    dump.rank = rank;
    dump.groups["0"] = {"default_pg", all};
    dump.groups["1"] = {"mesh_tp", std::make_shared<std::vector<int64_t>>(
                                       std::vector<int64_t>{rank / 2 * 2, rank / 2 * 2 + 1})};
    dump.status["1"] = {2, 2};
    dump.status["0"] = {-1, -1};
    for (int64_t sequence = 1; sequence <= 2; ++sequence) {
      FlightEntry entry;
      entry.record = sequence - 1;
      entry.sequence = sequence;
      entry.group = "1";
      entry.operation = "all_reduce";
      entry.created_ns = sequence * 1'000'000;
      entry.done = true;
      dump.entries.push_back(std::move(entry));
    }
  }
  return job;
}

void wait_in_row(FlightDump* dump) {
  FlightEntry entry = dump->entries.back();
  entry.record = 2;
  entry.sequence = 3;
  entry.done = false;
  dump->entries.push_back(std::move(entry));
  dump->status["1"].enqueued = 3;
}

FlightFinding found_of(std::vector<FlightDump> dumps) {
  JobEvidence job;
  job.dumps = std::move(dumps);
  tell_namesakes_apart(&job);
  return attribute_job(job);
}

TEST(Namesakes, GroupsOfOneNameAreToldApartByTheirRanks) {
  EXPECT_TRUE(found_of(mesh()).decided);
  auto job = mesh();
  wait_in_row(&job[2]);
  const FlightFinding found = found_of(job);
  EXPECT_EQ(found.guilty, RankSet{3});
  EXPECT_EQ(found.victims, RankSet{2});
  EXPECT_EQ(found.group, "1 [2, 3]");
  EXPECT_EQ(found.description, "mesh_tp");
}

TEST(Namesakes, AGroupThatAllHaveAlikeKeepsItsName) {
  JobEvidence job;
  job.dumps = mesh();
  tell_namesakes_apart(&job);
  EXPECT_TRUE(job.dumps[3].groups.contains("0"));
  EXPECT_TRUE(job.dumps[3].groups.contains("1 [2, 3]"));
  EXPECT_FALSE(job.dumps[3].groups.contains("1"));
}

// Dumps of two runs, or of two sizes of a job: lists that share a rank.
TEST(Namesakes, ListsThatOverlapAreNotToldApart) {
  auto job = mesh();
  job[3].groups["1"].ranks = std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{1, 3});
  wait_in_row(&job[2]);
  const FlightFinding found = found_of(job);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.guilty.empty());
}

TEST(Namesakes, WhatALogSaysOfTheGroupIsOfTheRanksOwn) {
  JobEvidence job;
  job.dumps = mesh();
  job.events.resize(2);
  job.events[0].rank = 2;
  job.events[0].group = "1";
  job.events[1].group = "1";  // nobody's
  tell_namesakes_apart(&job);
  EXPECT_EQ(job.events[0].group, "1 [2, 3]");
  EXPECT_EQ(job.events[1].group, "1");
}

TEST(Namesakes, ALongListIsCutShortInTheName) {
  auto job = mesh();
  std::vector<int64_t> many = {2, 3};
  for (int64_t rank = 100; rank < 120; ++rank) many.push_back(rank);
  for (size_t rank : {2, 3})
    job[rank].groups["1"].ranks = std::make_shared<std::vector<int64_t>>(many);
  wait_in_row(&job[2]);
  EXPECT_EQ(found_of(job).group, "1 [2, 3, 100, 101, 102, 103, 104, 105, 22 ranks]");
}

constexpr int64_t kBeginNs = 1'700'000'000'000'000'000;
constexpr int64_t kHourNs = int64_t{3600} * 1'000'000'000;

// Two ranks, one of which waits in its collective `of_one`; the other's dump ends at `of_other`.
std::vector<FlightDump> pair_of(int64_t of_one, int64_t of_other, int64_t apart_ns,
                                int64_t step_ns) {
  const auto both = std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 1});
  std::vector<FlightDump> job(2);
  for (int64_t rank = 0; rank < 2; ++rank) {
    FlightDump& dump = job[static_cast<size_t>(rank)];
    dump.rank = rank;
    dump.groups["0"] = {"default_pg", both};
    const int64_t last = rank == 0 ? of_one : of_other;
    dump.status["0"] = {last, rank == 0 ? last - 1 : last};
    for (int64_t sequence = 1; sequence <= last; ++sequence) {
      FlightEntry entry;
      entry.record = sequence - 1;
      entry.sequence = sequence;
      entry.group = "0";
      entry.operation = "all_reduce";
      entry.created_ns =
          kBeginNs + sequence * 1'000'000'000 + rank * (apart_ns + sequence * step_ns);
      entry.done = rank == 1 || sequence < last;
      dump.entries.push_back(std::move(entry));
    }
  }
  return job;
}

// A rank that left no dump this time may have left one in the run before.
TEST(OtherRuns, ADumpHoursOlderThanTheOthersAccusesNobody) {
  for (const auto& job :
       {pair_of(300, 100, -3 * kHourNs, 0), pair_of(20, 19, -9 * kHourNs, 400'000'000),
        pair_of(5, 4, 3 * kHourNs, 0)}) {
    const FlightFinding found = found_of(job);
    EXPECT_FALSE(found.decided);
    EXPECT_TRUE(found.guilty.empty());
    EXPECT_TRUE(found.candidates.contains(1));
  }
}

TEST(OtherRuns, AClockThatIsHoursApartIsNoOtherRun) {
  EXPECT_EQ(found_of(pair_of(20, 19, -3 * kHourNs, 0)).guilty, RankSet{1});
  EXPECT_EQ(found_of(pair_of(5, 4, -kHourNs, 0)).guilty, RankSet{1});
}

// PyTorch of another version, on one of the ranks.
TEST(OtherRuns, WhatOneRanksDumpDoesNotTellIsNoMismatch) {
  auto job = mesh();
  for (FlightDump& dump : job)
    for (FlightEntry& entry : dump.entries) {
      entry.sizes = "[[4]]";
      entry.dtypes = dump.rank == 3 ? "" : "[\"Float\"]";
    }
  for (size_t rank : {2, 3}) wait_in_row(&job[rank]);
  EXPECT_EQ(found_of(job).kind, FlightClass::nothing);
  job[3].entries[2].sizes = "[[5]]";
  EXPECT_EQ(found_of(job).kind, FlightClass::mismatch);
}

}  // namespace
}  // namespace lockstep
