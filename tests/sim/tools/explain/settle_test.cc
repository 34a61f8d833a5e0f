#include "sim/tools/explain/settle.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/tools/explain/attribution.h"

namespace lockstep {
namespace {

// Dumps as PyTorch writes them, of a job of three ranks; what is told of them is an expert's
// answer.

struct Call {
  int64_t sequence;
  std::string name = "nccl:all_reduce";
  bool done = true;
  std::string sizes = "[[8]]";
  int64_t point_to_point = 0;  // its number; of what is no collective
  bool counted = true;         // as a send or receive
};

std::string written_entry(int64_t record, const Call& call) {
  return fmt::format(
      R"({{"record_id": {}, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": {},)"
      R"("p2p_seq_id": {}, "profiling_name": "{}", "time_created_ns": {}, "input_sizes": {},)"
      R"("input_dtypes": ["Float"], "state": "{}", "retired": {}, "is_p2p": {}}})",
      record, call.sequence, call.point_to_point, call.name, 10 * record, call.sizes,
      call.done ? "completed" : "scheduled", call.done,
      call.point_to_point > 0 && call.counted && call.name != "nccl:coalesced" &&
          call.name != "nccl:all_reduce");
}

FlightDump written_dump(int64_t rank, const std::vector<Call>& calls, int64_t enqueued = -1,
                        int64_t completed = -1, int64_t first_record = 0) {
  std::string entries;
  for (const Call& call : calls)
    entries += (entries.empty() ? "" : ",") + written_entry(first_record++, call);
  const std::string status =
      enqueued < 0
          ? ""
          : fmt::format(
                R"("pg_status": {{"0": {{"last_enqueued_collective": {}, "last_completed_collective": {}}}}},)",
                enqueued, completed);
  RankLists lists;
  const auto read = flight_dump_of(
      fmt::format(
          R"({{"version": "2.9", "pg_config": {{"0": {{"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}}},)"
          R"({}"entries": [{}]}})",
          status, entries),
      fmt::format("_dump_{}", rank), &lists);
  EXPECT_TRUE(read) << (read ? "" : to_text(read.errors().front()));
  return read ? read.value() : FlightDump{};
}

using Calls = std::vector<Call>;

void add_coalesced(int64_t sequence, bool done, Calls* calls) {
  calls->push_back({sequence, "nccl:_all_gather_base", false, "[[4]]"});
  calls->push_back({sequence, "nccl:_all_gather_base", false, "[[9]]"});
  calls->push_back({sequence, "nccl:coalesced", done, "[]"});
}

TEST(FlightSettle, WhatIsCoalescedIsOneCollectiveWithTheStateOfTheWhole) {
  Calls calls;
  for (int64_t sequence = 1; sequence <= 3; ++sequence) add_coalesced(sequence, true, &calls);
  std::vector<FlightDump> job;
  for (int64_t rank = 0; rank < 3; ++rank) job.push_back(written_dump(rank, calls, 3, 3));
  ASSERT_EQ(job[0].entries.size(), 3U);
  EXPECT_EQ(job[0].entries[0].operation, "_all_gather_base");
  EXPECT_TRUE(job[0].entries[0].done);
  EXPECT_EQ(attribute(job).kind, FlightClass::nothing) << "everybody was accused of a mismatch";
  EXPECT_TRUE(attribute(job).decided);

  Calls waiting = calls;
  add_coalesced(4, false, &waiting);
  for (const int64_t rank : {0, 2})
    job[static_cast<size_t>(rank)] = written_dump(rank, waiting, 4, 3);
  EXPECT_EQ(attribute(job).guilty, RankSet{1});
  EXPECT_EQ(attribute(job).kind, FlightClass::never_entered);
}

TEST(FlightSettle, TheWholeOfSendsAndReceivesIsNoCollective) {
  std::vector<FlightDump> job = {
      written_dump(
          0, {{1}, {1, "nccl:send 0->1", false, "[[8]]", 1}, {1, "nccl:coalesced", true, "[]", 1}}),
      written_dump(
          1, {{1}, {1, "nccl:recv 1<-0", false, "[[8]]", 1}, {1, "nccl:coalesced", true, "[]", 1}}),
      written_dump(2, {{1}})};
  for (const FlightEntry& one : job[0].entries) EXPECT_TRUE(one.done) << one.operation;
  EXPECT_TRUE(attribute(job).decided);
  EXPECT_EQ(attribute(job).kind, FlightClass::nothing);
}

TEST(FlightSettle, WhatTheRingLostTheBeginningOfIsNotCompared) {
  Calls whole, half;
  add_coalesced(9, true, &whole);
  half.assign(whole.begin() + 1, whole.end());
  for (Calls* calls : {&whole, &half}) calls->push_back({10});
  const std::vector<FlightDump> job = {written_dump(0, whole, 10, 10, 50),
                                       written_dump(1, half, 10, 10, 51),
                                       written_dump(2, whole, 10, 10, 50)};
  EXPECT_EQ(attribute(job).kind, FlightClass::nothing);
}

// As those of a CUDA graph, whose states nobody updates.
TEST(FlightSettle, BeforeACollectiveThatIsOverAllAre) {
  const Calls calls = {{1, "nccl:all_reduce", false}, {2, "nccl:all_reduce", false}, {3}};
  std::vector<FlightDump> job;
  for (int64_t rank = 0; rank < 3; ++rank) job.push_back(written_dump(rank, calls, 3, 3));
  EXPECT_TRUE(job[0].entries[0].done);
  EXPECT_TRUE(attribute(job).decided);
  EXPECT_TRUE(attribute(job).guilty.empty());
}

// A pipeline's group: the status counts sends and receives as it counts collectives.
TEST(FlightSettle, AStatusThatCountsSendsAccusesNobody) {
  const auto calls = [](int64_t rank, bool enters) {
    Calls made = {{1}, {2}};
    for (int64_t sent = 1; rank < 2 && sent <= 6; ++sent)
      made.push_back({2, rank == 0 ? "nccl:send 0->1" : "nccl:recv 1<-0", true, "[[8]]", sent});
    if (enters) made.push_back({3, "nccl:all_reduce", false, "[[8]]", 6});
    return made;
  };
  const std::vector<FlightDump> job = {written_dump(0, calls(0, true), 3, 2),
                                       written_dump(1, calls(1, true), 3, 6),
                                       written_dump(2, calls(2, false), 2, 2)};
  EXPECT_EQ(attribute(job).guilty, RankSet{2}) << "rank 0 was said to hold what rank 1 completed";
  EXPECT_EQ(attribute(job).victims, (RankSet{0, 1}));
}

TEST(FlightSettle, WhoGetsNothingInAnAllToAllMayEndBeforeOthersEnter) {
  const auto calls = [](bool done) { return Calls{{1}, {2, "nccl:all_to_all", done}}; };
  const std::vector<FlightDump> job = {written_dump(0, calls(false), 2, 1),
                                       written_dump(1, {{1}}, 1, 1),
                                       written_dump(2, calls(true), 2, 2)};
  EXPECT_EQ(attribute(job).guilty, RankSet{1}) << "rank 0 waits for it";
}

FlightDump written_as(const std::string& text, const std::string& name = "_dump_1") {
  RankLists lists;
  const auto read = flight_dump_of(text, name, &lists);
  EXPECT_TRUE(read) << (read ? "" : to_text(read.errors().front()));
  return read ? read.value() : FlightDump{};
}

TEST(FlightSettle, OlderFormatsAndNumbersAsTextsAreRead) {
  const std::string before = R"(, "pg_config": {}, "entries": [{"record_id": "4", "pg_id": "0", )"
                             R"("process_group": ["0", "default_pg"], "profiling_name": "nccl:)";
  const std::string after =
      R"(", "time_created_ns": "7", "state": "scheduled", "retired": "true"}]})";
  const FlightDump of_23 =
      written_as(R"({"version": "1.5")" + before + R"(all_reduce", "seq_id": 5, "x": ")" + after);
  EXPECT_EQ(of_23.entries.at(0).sequence, 5);
  EXPECT_FALSE(of_23.entries.at(0).point_to_point);
  EXPECT_TRUE(
      written_as(R"({"version": "1.5")" + before + R"(send 0->1", "seq_id": 5, "x": ")" + after)
          .entries.at(0)
          .point_to_point);
  const FlightDump of_24 = written_as(R"({"version": "2.1")" + before +
                                      R"(all_reduce", "collective_seq_id": "5", "x": ")" + after);
  EXPECT_EQ(of_24.entries.at(0).sequence, 5);
  EXPECT_EQ(of_24.entries.at(0).record, 4);
  EXPECT_EQ(of_24.entries.at(0).timeout_ms, 0);
  EXPECT_FALSE(of_24.entries.at(0).done) << "no longer waited for, and not completed: timed out";
  for (const char* version : {"1.3", "3.0", "2", "", "2.x"}) {
    RankLists lists;
    EXPECT_FALSE(flight_dump_of(R"({"version": ")" + std::string(version) + "\"" + before +
                                    R"(a", "collective_seq_id": 5, "x": ")" + after,
                                "_dump_1", &lists))
        << version;
  }
}

}  // namespace
}  // namespace lockstep
