#include "sim/tools/explain/arrival_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sim/tools/explain/dump.h"
#include "sim/tools/explain/late_arrivals.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// A job over NCCL, whose hosts queue their calls: GPUs come to the first of `calls` of a step
// half a step after that, and one of them may be late.
struct QueuedJob {
  int64_t world_size = 4, steps = 12, late = -1, late_host = -1;
  double late_ms = 20, clock_ahead_ms = 0, begin_ms = 0;
  std::vector<std::string> calls = {"all_reduce", "all_reduce"};
  int64_t FlightEntry::*told = &FlightEntry::ran_ns;  // null: how long they ran is not told

  std::vector<FlightDump> dumps() const {
    std::vector<FlightDump> made(static_cast<size_t>(world_size));
    for (int64_t step = 0; step < steps; ++step)
      for (size_t call = 0; call < calls.size(); ++call)
        for (int64_t rank = 0; rank < world_size; ++rank)
          add(step, call, rank, &made[static_cast<size_t>(rank)]);
    return made;
  }

  FlightFinding finding() const {
    FlightFinding found;
    find_late_arrivals(dumps(), &found);
    return found;
  }

 private:
  void add(int64_t step, size_t call, int64_t rank, FlightDump* dump) const {
    dump->rank = rank;
    FlightEntry entry;
    entry.group = "0";
    entry.operation = calls[call];
    entry.sizes = std::to_string(call);
    entry.sequence = static_cast<int64_t>(dump->entries.size()) + 1;
    // Nothing is as regular as this: so much more or less, by rank and step.
    const double uneven = static_cast<double>((step * 7 + rank * 3) % 5) * 0.1;
    const double host = rank == late_host ? late_ms : 0;
    const double clock = rank == world_size - 1 ? clock_ahead_ms : 0;
    entry.created_ns =
        static_cast<int64_t>((1e6 + static_cast<double>(step) * 100 +
                              static_cast<double>(call) * 10 + host + clock + uneven) *
                             1e6);
    const double waited = late >= 0 && rank != late && call == 0 ? late_ms : 0;
    if (told != nullptr) entry.*told = static_cast<int64_t>((begin_ms + 3 + waited + uneven) * 1e6);
    dump->entries.push_back(entry);
  }
};

TEST(ArrivalRuns, WhoseGpuRunsShortestWhileTheOthersWaitIsNamed) {
  for (const auto told : {&FlightEntry::ran_ns, &FlightEntry::seen_ns}) {
    const FlightFinding found = QueuedJob{.late = 2, .told = told}.finding();
    EXPECT_TRUE(found.decided);
    EXPECT_EQ(found.guilty, RankSet{2});
    EXPECT_NEAR(found.lateness_ms.value_or(0), 20, 1);
    ASSERT_FALSE(found.evidence.empty());
    EXPECT_THAT(found.evidence.front(), HasSubstr("by how long their GPUs ran in it"));
  }
  EXPECT_EQ((QueuedJob{.late = 3, .clock_ahead_ms = 7000}).finding().guilty, RankSet{3});
  EXPECT_EQ((QueuedJob{.world_size = 2, .late = 1}).finding().guilty, RankSet{1});
}

TEST(ArrivalRuns, WhoseHostAloneIsLateKeepsNobodyWaiting) {
  QueuedJob job{.late_host = 0};
  EXPECT_TRUE(job.finding().decided);
  EXPECT_EQ(job.finding().kind, FlightClass::nothing);
  job.late = 3;
  EXPECT_EQ(job.finding().guilty, RankSet{3});
  job = {.late_host = 0, .told = nullptr};
  EXPECT_FALSE(job.finding().decided);
  EXPECT_EQ(job.finding().candidates, RankSet{0});
}

// Ten times a second, so that both ends of a call are seen at once, or rounds apart.
TEST(ArrivalRuns, AWatchdogsRoundsTellNobodysLateness) {
  for (const double late_ms : {0.0, 100.0}) {
    const QueuedJob job{
        .late = 2, .late_ms = late_ms, .begin_ms = -3, .told = &FlightEntry::seen_ns};
    EXPECT_EQ(job.finding().guilty, RankSet{}) << late_ms;
  }
}

// Who got it early from a broadcast's root is through early, and may be late to the next for that.
TEST(ArrivalRuns, WhatSomeLeaveBeforeOthersCameIsLeftOut) {
  QueuedJob job{.late = 2, .calls = {"broadcast", "all_reduce"}};
  EXPECT_EQ(job.finding().guilty, RankSet{});
  job.calls = {"all_reduce", "broadcast"};
  EXPECT_EQ(job.finding().guilty, RankSet{}) << "the one of the step before";
  job.calls = {"all_reduce", "broadcast", "all_reduce"};
  EXPECT_EQ(job.finding().guilty, RankSet{2});
}

// It may be that of which the hosts tell that some were late to it.
TEST(ArrivalRuns, ThatNobodyIsLateIsNotSaidWhereCallsAreLeftOut) {
  const QueuedJob job{.late_host = 1,
                      .calls = {"broadcast", "all_reduce", "all_reduce", "all_reduce"}};
  EXPECT_FALSE(job.finding().decided);
  EXPECT_EQ(job.finding().candidates, RankSet{1});
}

TEST(ArrivalRuns, AreReadFromDumps) {
  RankLists lists;
  const auto dump = flight_dump_of(
      R"({"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks":
        "[0, 1]"}}, "pg_status": {}, "entries": [{"record_id": 0, "pg_id": 0, "process_group": ["0",
        "default_pg"], "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1, "profiling_name":
        "nccl:all_reduce", "time_created_ns": 7, "duration_ms": 2.5, "input_sizes": [[4]],
        "output_sizes": [[4]], "state": "completed", "time_discovered_started_ns": 20,
        "time_discovered_completed_ns": 50, "retired": true, "is_p2p": false},
        {"record_id": 1, "process_group": ["0", "default_pg"], "collective_seq_id": 2,
        "profiling_name": "nccl:all_reduce", "time_created_ns": 8, "duration_ms": null,
        "state": "started", "time_discovered_started_ns": 60, "time_discovered_completed_ns":
        null}, {"record_id": 2, "process_group": ["0", "default_pg"], "collective_seq_id": 3,
        "profiling_name": "nccl2:all_reduce", "time_created_ns": 9, "duration_ms": 2.5,
        "state": "completed"}]})",
      "dump_1", &lists);
  ASSERT_TRUE(dump);
  ASSERT_EQ(dump.value().entries.size(), 3U);
  EXPECT_EQ(dump.value().entries[0].ran_ns, 2'500'000);
  EXPECT_EQ(dump.value().entries[0].seen_ns, 30);
  EXPECT_EQ(dump.value().entries[1].ran_ns, -1);
  EXPECT_EQ(dump.value().entries[1].seen_ns, -1);
  EXPECT_EQ(dump.value().entries[2].ran_ns, -1) << "a hook's";
}

}  // namespace
}  // namespace lockstep
