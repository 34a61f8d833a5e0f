#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sim/tools/explain/attribution.h"

namespace lockstep {
namespace {

// Pairs of tensor-parallel ranks, in one of which a rank waits for the other: it may have made a
// call too many.

using RankNumbers = std::vector<int64_t>;

void enter_call(FlightDump* dump, const std::string& group, int64_t sequence, bool done) {
  FlightEntry entry;
  entry.record = static_cast<int64_t>(dump->entries.size());
  entry.group = group;
  entry.sequence = sequence;
  entry.operation = "all_reduce";
  entry.sizes = "[[4]]";
  entry.dtypes = "[\"Float\"]";
  entry.created_ns = 10'000'000 * (entry.record + 1);
  entry.timeout_ms = 1000;
  entry.done = done;
  dump->entries.push_back(entry);
  FlightStatus& status = dump->status[group];
  status.enqueued = sequence;
  if (done) status.completed = sequence;
}

// All of which completed three calls in their pair and in the group of all.
std::vector<FlightDump> job_of_pairs(int64_t pairs) {
  std::vector<FlightDump> job(static_cast<size_t>(2 * pairs));
  RankNumbers all;
  for (int64_t rank = 0; rank < 2 * pairs; ++rank) all.push_back(rank);
  for (const int64_t rank : all) {
    FlightDump& dump = job[static_cast<size_t>(rank)];
    const int64_t first = rank - rank % 2;
    const std::string pair = std::to_string(1 + rank / 2);
    dump.rank = rank;
    dump.groups["0"] = {"default_pg", std::make_shared<RankNumbers>(all)};
    dump.groups[pair] = {"mesh_tp", std::make_shared<RankNumbers>(RankNumbers{first, first + 1})};
    for (int64_t sequence = 1; sequence <= 3; ++sequence) {
      enter_call(&dump, pair, sequence, true);
      enter_call(&dump, "0", sequence, true);
    }
  }
  return job;
}

TEST(HalfGroups, WhereNobodyElseWaitsTheOneThatWaitsMayHaveMadeACallTooMany) {
  auto job = job_of_pairs(3);
  enter_call(&job[2], "2", 4, false);
  const FlightFinding found = attribute(job);
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.guilty, RankSet{});
  EXPECT_EQ(found.candidates, (RankSet{2, 3}));
  ASSERT_EQ(found.missing.size(), 1U);
  EXPECT_EQ(found.missing.front(),
            "whether rank 2 made a call too many, or rank 3 stopped early: half of group 2 "
            "(mesh_tp) did not enter it, and no rank outside it waits");
}

TEST(HalfGroups, WhereTheRestOfTheJobWaitsTheOneThatDidNotComeIsNamed) {
  auto job = job_of_pairs(3);
  enter_call(&job[2], "2", 4, false);
  for (const size_t rank : {0, 1, 4, 5}) enter_call(&job[rank], "0", 4, false);
  const FlightFinding found = attribute(job);
  EXPECT_TRUE(found.decided);
  EXPECT_EQ(found.guilty, RankSet{3});
}

TEST(HalfGroups, WhoNeverMeetsTheRestIsNamed) {
  auto job = job_of_pairs(3);
  for (FlightDump& dump : job) {
    std::erase_if(dump.entries, [](const FlightEntry& entry) { return entry.group == "0"; });
    dump.status["0"] = {-1, -1};
  }
  enter_call(&job[2], "2", 4, false);
  EXPECT_EQ(attribute(job).guilty, RankSet{3});
}

TEST(HalfGroups, OfAJobOfTwoRanksThereIsNoRest) {
  auto job = job_of_pairs(1);
  enter_call(&job[0], "0", 4, false);
  EXPECT_EQ(attribute(job).guilty, RankSet{1});
}

}  // namespace
}  // namespace lockstep
