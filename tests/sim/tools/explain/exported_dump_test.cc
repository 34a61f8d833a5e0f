#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "sim/report/trace/trace.h"
#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"
#include "sim/tools/explain/late_arrivals.h"
#include "tests/sim/analysis/made_mesh.h"

namespace lockstep {
namespace {

// Dumps that our own runs leave, read as those of PyTorch are.
class ExportedDump : public testing::Test {
 protected:
  ExportedDump() : folder_(testing::TempDir() + "lockstep_dumps_" + std::to_string(getpid())) {
    std::filesystem::create_directory(folder_);
    run_.world_size = 3;
    run_.steps = 10;
  }
  ~ExportedDump() override { std::filesystem::remove_all(folder_); }

  std::vector<FlightDump> dumps_of(const RunOutcome& outcome) {
    write_trace({folder_, "flight_recorder"}, outcome);
    std::vector<FlightDump> dumps;
    RankLists lists;
    for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
      auto dump = read_flight_dump(folder_ + "/_dump_" + std::to_string(rank), &lists);
      if (dump) dumps.push_back(std::move(dump.value()));
    }
    return dumps;
  }
  RunOutcome made(const std::string& communicator) {
    RunOutcome outcome = run_.make();
    outcome.plan.scenario.communicator.kind = communicator;
    outcome.plan.scenario.timeouts.collective_ms = 600;
    return outcome;
  }
  // As if the rank had ended before it recorded this.
  static void erase_from(uint32_t sequence, EventKind kind, RankRecords* rank) {
    std::erase_if(rank->events, [&](const Event& event) {
      return event.sequence >= sequence && static_cast<EventKind>(event.kind) == kind;
    });
  }
  std::string folder_;
  MadeRun run_;
};

TEST_F(ExportedDump, HasAllThatARankRecorded) {
  RunOutcome outcome = made("shm");
  erase_from(29, EventKind::end, &outcome.ranks[2]);
  const auto dumps = dumps_of(outcome);
  ASSERT_EQ(dumps.size(), 3u);
  const FlightDump& dump = dumps[2];
  EXPECT_EQ(dump.rank, 2);
  EXPECT_EQ(dump.groups.at("0").description, "default_pg");
  EXPECT_THAT(*dump.groups.at("0").ranks, testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(dump.status.at("0").enqueued, 30);
  EXPECT_EQ(dump.status.at("0").completed, 28);
  ASSERT_EQ(dump.entries.size(), 30u);
  const FlightEntry& entry = dump.entries[28];
  EXPECT_EQ(entry.record, 28);
  EXPECT_EQ(entry.sequence, 29);
  EXPECT_EQ(entry.operation, "all_reduce");
  EXPECT_EQ(entry.sizes, "[[250000]]");
  EXPECT_EQ(entry.dtypes, "[\"Float\"]");
  EXPECT_EQ(entry.timeout_ms, 600);
  EXPECT_GT(entry.created_ns, dump.entries[27].created_ns);
  EXPECT_FALSE(entry.done);
  EXPECT_TRUE(dump.entries[27].done);
  EXPECT_FALSE(entry.gloo);
}

TEST_F(ExportedDump, KeepsTheNewest) {
  run_.steps = 700;
  const auto dumps = dumps_of(made("gloo"));
  EXPECT_EQ(dumps[0].entries.size(), 2000u);
  EXPECT_EQ(dumps[0].entries.back().sequence, 2100);
  EXPECT_EQ(dumps[0].entries.back().record, 2099);
}

TEST_F(ExportedDump, OfARingThatLostCallsBeginsLater) {
  RunOutcome outcome = made("gloo");
  std::vector<Event>& events = outcome.ranks[0].events;
  events.erase(events.begin(), events.begin() + static_cast<ptrdiff_t>(events.size() / 2));
  const auto dumps = dumps_of(outcome);
  EXPECT_EQ(dumps[0].entries[0].record, dumps[0].entries[0].sequence - 1);
  EXPECT_GT(dumps[0].entries[0].record, 0);
  EXPECT_EQ(dumps[1].entries[0].record, 0);
}

TEST_F(ExportedDump, HasEveryGroupThatTheRankIsIn) {
  RunOutcome outcome = made_mesh();
  end_before(&outcome, 3, 0, 1);
  stay_in(&outcome, 2, 0, 1);
  const auto dumps = dumps_of(outcome);
  ASSERT_EQ(dumps.size(), 4u);
  const FlightDump& dump = dumps[0];
  EXPECT_EQ(dump.groups.size(), 3u);
  EXPECT_EQ(dump.groups.at("1").description, "row");
  EXPECT_EQ(dumps[1].groups.at("1").description, "row") << "its other member told";
  EXPECT_EQ(dumps[2].groups.at("2").description, "undefined");
  EXPECT_THAT(*dump.groups.at("3").ranks, testing::ElementsAre(0, 2));
  EXPECT_EQ(dump.status.at("0").enqueued, 6);
  EXPECT_EQ(dump.status.at("3").enqueued, 2);
  EXPECT_EQ(dump.status.at("3").completed, 2);
  EXPECT_EQ(dumps[3].groups.size(), 3u) << "also where it has called nothing in them";
  EXPECT_EQ(dumps[3].status.at("4").enqueued, -1);
  EXPECT_EQ(dumps[2].status.at("2").completed, -1);
  const FlightEntry& entry = dump.entries[4];
  EXPECT_EQ(entry.record, 4);
  EXPECT_EQ(entry.group, "3");
  EXPECT_EQ(entry.sequence, 1);
  EXPECT_EQ(entry.sizes, "[[4000]]");
  EXPECT_EQ(entry.timeout_ms, 700);
  EXPECT_EQ(dump.entries[3].timeout_ms, 0) << "nobody told it";
}

TEST_F(ExportedDump, WhatAScattersSourceGaveTheOthersGot) {
  RunOutcome outcome = made_mesh();
  for (const size_t rank : {2, 3})
    for (Event& event : outcome.ranks[rank].events)
      if (event.kind == kGroupArrival && event.subject == 0)
        event.value = event.sequence == 1
                          ? pack_collective(5, rank == 2 ? 6 : 255, rank == 2 ? 400 : 0)
                          : pack_collective(8, 6, 400);
  const auto dumps = dumps_of(outcome);
  const auto sizes = [&](size_t rank, int64_t sequence) {
    for (const FlightEntry& entry : dumps[rank].entries)
      if (entry.group == "2" && entry.sequence == sequence) return entry.sizes + entry.dtypes;
    return std::string("none");
  };
  EXPECT_EQ(sizes(2, 1), "[[100]]->[[50]][\"Float\"]");
  EXPECT_EQ(sizes(3, 1), "[[0]]->[[50]][\"Float\"]");
  EXPECT_EQ(sizes(3, 2), "[[]][\"Float\"]") << "an all_to_all may be uneven";
}

// Of which no other dump tells, since no other rank is in them.
TEST_F(ExportedDump, AGroupOfOneRankIsNoRiddle) {
  RunOutcome outcome = made("gloo");
  outcome.groups = {{{"1", {0}}}, {{"2", {1}}}, {}};
  for (const size_t rank : {0, 1}) {
    const Event last = outcome.ranks[rank].events.back();
    for (const uint16_t kind : {kGroupArrival, kGroupEnd})
      outcome.ranks[rank].events.push_back(
          {last.time_ns + kind, 1, kind, last.phase, last.step, 0, pack_collective(1, 6, 4)});
  }
  erase_from(28, EventKind::arrival, &outcome.ranks[1]);
  for (RankRecords& rank : outcome.ranks) erase_from(28, EventKind::end, &rank);
  EXPECT_THAT(attribute(dumps_of(outcome)).guilty, testing::ElementsAre(1));
}

// Ranks 0 and 2 wait for others of their groups, and only rank 3 for nobody.
TEST_F(ExportedDump, WhoNeverEnteredACollectiveOfAGroupIsNamed) {
  RunOutcome outcome = made_mesh(12);
  end_before(&outcome, 3, 0, 9);
  for (const size_t rank : {0, 1, 2})
    stay_in(&outcome, rank, rank == 2 ? 0 : 1 - static_cast<int32_t>(rank), 9);
  end_before(&outcome, 0, 1, 10);
  const FlightFinding finding = attribute(dumps_of(outcome));
  EXPECT_EQ(finding.kind, FlightClass::never_entered);
  EXPECT_THAT(finding.guilty, testing::ElementsAre(3));
}

TEST_F(ExportedDump, WhoNeverEnteredIsNamed) {
  for (const char* communicator : {"gloo", "c10d", "shm", "nccl"}) {
    RunOutcome outcome = made(communicator);
    erase_from(28, EventKind::arrival, &outcome.ranks[1]);
    for (RankRecords& rank : outcome.ranks) erase_from(28, EventKind::end, &rank);
    const FlightFinding finding = attribute(dumps_of(outcome));
    EXPECT_EQ(finding.kind, FlightClass::never_entered) << communicator;
    EXPECT_THAT(finding.guilty, testing::ElementsAre(1)) << communicator;
    EXPECT_THAT(finding.victims, testing::ElementsAre(0, 2)) << communicator;
    EXPECT_EQ(finding.sequence, 28) << communicator;
  }
}

TEST_F(ExportedDump, WhoCallsSomethingElseIsNamed) {
  RunOutcome outcome = made("gloo");
  for (Event& event : outcome.ranks[2].events)
    if (event.sequence == 14 && static_cast<EventKind>(event.kind) == EventKind::arrival)
      event.value = pack_collective(1, 7, 1'000'000);
  const FlightFinding finding = attribute(dumps_of(outcome));
  EXPECT_EQ(finding.kind, FlightClass::mismatch);
  EXPECT_THAT(finding.guilty, testing::ElementsAre(2));
  EXPECT_EQ(finding.sequence, 14);
}

TEST_F(ExportedDump, WhoHoldsWhatPeersCompletedIsNamed) {
  RunOutcome outcome = made("shm");
  erase_from(30, EventKind::end, &outcome.ranks[0]);
  const FlightFinding finding = attribute(dumps_of(outcome));
  EXPECT_EQ(finding.kind, FlightClass::held);
  EXPECT_THAT(finding.guilty, testing::ElementsAre(0));
}

// Named it would be if it came in time to another collective of the step.
TEST_F(ExportedDump, AStragglerIsACandidate) {
  run_.steps = 20;
  run_.slower = [](int64_t rank, int64_t, Phase phase) {
    return MadeRun::Slower{.more_ms = rank == 2 && phase == Phase::backward ? 15.0 : 0.0};
  };
  const auto dumps = dumps_of(made("gloo"));
  FlightFinding finding = attribute(dumps);
  find_late_arrivals(dumps, &finding);
  EXPECT_TRUE(finding.guilty.empty());
  EXPECT_THAT(finding.candidates, testing::ElementsAre(2));
}

}  // namespace
}  // namespace lockstep
