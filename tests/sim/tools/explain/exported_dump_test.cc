#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "sim/report/trace/trace.h"
#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"
#include "sim/tools/explain/late_arrivals.h"
#include "tests/sim/analysis/made_run.h"

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
  EXPECT_EQ(entry.record, 29);
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
  EXPECT_EQ(dumps[0].entries.back().record, 2100);
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
