#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "scenarios/parse/suite.h"
#include "scenarios/workloads/workload.h"
#include "sim/launch/protocol.h"
#include "sim/worker/thread_host.h"
#include "tests/sim/worker/prepared.h"

namespace lockstep {
namespace {

class ThreadRun : public testing::Test {
 protected:
  static void SetUpTestSuite() { prepare_once(); }

  ThreadRun() {
    dir_ = std::filesystem::temp_directory_path() / ("thread-run-" + std::to_string(getpid()));
    std::filesystem::create_directories(dir_);
  }
  ~ThreadRun() override { std::filesystem::remove_all(dir_); }

  RunPlan plan(const std::string& file, std::vector<std::string> sets) {
    sets.push_back("/communicator/kind=local");
    auto loaded =
        load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/" + file, {.sets = sets, .seed = {}});
    EXPECT_TRUE(loaded) << to_text(loaded.errors().front());
    auto made = make_plan(loaded.value().combinations.front().scenario);
    EXPECT_TRUE(made);
    return made.value();
  }

  std::vector<Evidence> run(const RunPlan& plan) {
    recorders_.clear();
    for (int64_t rank = 0; rank < plan.scenario.world_size; ++rank)
      recorders_.push_back(Recorder::create(records_path(dir_, rank), static_cast<int32_t>(rank),
                                            static_cast<int32_t>(plan.scenario.world_size),
                                            static_cast<uint64_t>(plan.record_capacity)));
    return run_in_threads(plan, recorders_, cache_, dir_);
  }

  std::vector<Event> events(int64_t rank, EventKind kind) {
    RankRecords records;
    std::string why;
    EXPECT_TRUE(read_records(records_path(dir_, rank), &records, &why)) << why;
    std::vector<Event> found;
    for (const Event& event : records.events)
      if (event.kind == static_cast<uint16_t>(kind)) found.push_back(event);
    return found;
  }

  std::filesystem::path dir_;
  GoldenCache cache_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
};

TEST_F(ThreadRun, CorrectRunFindsNoDifferenceAndEveryControlDetects) {
  const RunPlan made = plan("equivalence/toy_model.json", {"/world_size=3"});
  const auto evidence = run(made);
  for (int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(evidence[rank].error.text, "");
    EXPECT_TRUE(evidence[rank].mismatches.empty());
    EXPECT_TRUE(events(rank, EventKind::mismatch).empty());
    const auto controls = events(rank, EventKind::control);
    EXPECT_EQ(controls.size(), 6U);  // three lanes, after step 1 and again at the end
    for (const Event& control : controls) EXPECT_EQ(control.value, 1U) << control.subject;
    EXPECT_EQ(events(rank, EventKind::finished).size(), 1U);
  }
  EXPECT_EQ(events(0, EventKind::step_end).size(), 2 * static_cast<size_t>(made.scenario.steps));
}

TEST_F(ThreadRun, EveryMutantLeavesAReceiptAndEvidence) {
  for (const char* file : {"negative/wrong_divisor.json", "negative/dropped_bucket.json",
                           "negative/duplicate_shard.json"}) {
    const auto evidence = run(plan(file, {}));
    bool seen = false;
    for (const Evidence& rank : evidence) seen = seen || !rank.mismatches.empty();
    EXPECT_TRUE(seen) << file;
  }
}

TEST_F(ThreadRun, GoldenRunsAreSharedBetweenReducersThatAddAlike) {
  const RunPlan bucketed = plan("equivalence/toy_model.json", {"/reducer/kind=bucketed"});
  const RunPlan c10d = plan("equivalence/toy_model.json", {"/reducer/kind=c10d"});
  run(bucketed);
  const auto before = std::filesystem::file_size(records_path(dir_, 0));
  EXPECT_GT(before, 0U);
  for (const Evidence& rank : run(c10d)) EXPECT_TRUE(rank.mismatches.empty());
}

}  // namespace
}  // namespace lockstep
