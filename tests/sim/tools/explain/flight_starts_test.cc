#include "sim/tools/explain/flight_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/tools/explain/attribution.h"

namespace lockstep {
namespace {

// Four ranks, two by two: rows {0, 1} and {2, 3}, a column {1, 3}, and all; whose dumps tell when
// calls began on the GPU. Of each group one collective is over.
class Grid {
 public:
  Grid() {
    for (int64_t rank = 0; rank < 4; ++rank) {
      dumps.emplace_back();
      dumps.back().rank = rank;
      dumps.back().tells_starts = true;
      for (const auto& [name, ranks] : groups_)
        if (std::find(ranks->begin(), ranks->end(), rank) != ranks->end()) {
          dumps.back().groups[name] = {"sub", ranks};
          call(rank, name, "completed");
        }
    }
  }

  void call(int64_t rank, const std::string& group, const std::string& state) {
    FlightDump& dump = dumps[static_cast<size_t>(rank)];
    FlightStatus& status = dump.status[group];
    FlightEntry entry;
    entry.record = static_cast<int64_t>(dump.entries.size());
    entry.group = group;
    entry.operation = "all_reduce";
    entry.sequence = status.enqueued = std::max<int64_t>(0, status.enqueued) + 1;
    entry.done = state == "completed";
    entry.started = state != "scheduled";
    if (entry.done) status.completed = entry.sequence;
    dump.entries.push_back(std::move(entry));
  }

  std::vector<FlightDump> dumps;

 private:
  static RankList list(std::vector<int64_t> ranks) {
    return std::make_shared<std::vector<int64_t>>(std::move(ranks));
  }
  std::map<std::string, RankList> groups_ = {{"all", list({0, 1, 2, 3})},
                                             {"row 0", list({0, 1})},
                                             {"row 2", list({2, 3})},
                                             {"column", list({1, 3})}};
};

// Rank 2's GPU never began; rank 3 did, and so has not come to its column.
TEST(FlightStarts, WhoWaitsForAGPUThatNeverBeganIsItsVictim) {
  Grid job;
  job.call(2, "row 2", "scheduled");
  job.call(3, "row 2", "started");
  job.call(1, "column", "started");
  const FlightFinding found = attribute(job.dumps);
  EXPECT_TRUE(found.decided);
  EXPECT_EQ(found.kind, FlightClass::not_started);
  EXPECT_EQ(found.guilty, RankSet{2});
  EXPECT_EQ(found.victims, (RankSet{1, 3}));
}

// What its host called ahead is behind what its GPU never began.
TEST(FlightStarts, WhatARankCalledAheadIsNothingThatItWaitsIn) {
  Grid job;
  job.call(2, "row 2", "scheduled");
  job.call(2, "all", "scheduled");
  job.call(3, "row 2", "started");
  for (const int64_t rank : {0, 1}) job.call(rank, "all", "started");
  EXPECT_EQ(attribute(job.dumps).guilty, RankSet{2});
  // Unless its GPU is in it: then that may be what keeps the other.
  job.dumps[2].entries.back().started = true;
  EXPECT_TRUE(attribute(job.dumps).guilty.empty());
}

TEST(FlightStarts, ADumpWithoutAnEndIsTimedAsTheOthersAre) {
  Grid job;
  job.dumps[2].entries.clear();
  job.dumps[2].tells_starts = false;
  auto timed = job.dumps;
  share_starts(&timed);
  EXPECT_TRUE(timed[2].tells_starts);
  auto mixed = job.dumps;
  mixed[0].tells_starts = false;  // and has completed calls
  share_starts(&mixed);
  EXPECT_FALSE(mixed[2].tells_starts);
  auto untimed = job.dumps;
  for (FlightDump& dump : untimed) {
    dump.entries.clear();
    dump.tells_starts = false;
  }
  share_starts(&untimed);
  EXPECT_FALSE(untimed[2].tells_starts);
}

}  // namespace
}  // namespace lockstep
