#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/parse/suite.h"
#include "scenarios/workloads/workload.h"
#include "sim/launch/protocol.h"
#include "sim/worker/thread_host.h"
#include "tests/sim/worker/prepared.h"

namespace lockstep {
namespace {

// Each new kind of defect, put into a small training: does it act where it is told to, and does
// the replay differ first there?
class DataMutants : public testing::Test {
 protected:
  static void SetUpTestSuite() { prepare_once(); }

  DataMutants() {
    dir_ = std::filesystem::temp_directory_path() / ("data-mutants-" + std::to_string(getpid()));
    std::filesystem::create_directories(dir_);
  }
  ~DataMutants() override { std::filesystem::remove_all(dir_); }

  void run(const std::string& mutant, std::vector<std::string> sets = {}) {
    sets.insert(sets.begin(), {"/communicator/kind=local", "/mutants=[" + mutant + "]",
                               "/lanes=[\"replica\", \"replay\"]", "/reducer/bucket_cap_mb=0.0005",
                               "/reducer/first_bucket_mb=0.0002"});
    const auto loaded = load_scenario_file(
        LOCKSTEP_SOURCE_DIR "/scenarios/negative/flipped_bit.json", {.sets = sets, .seed = {}});
    ASSERT_TRUE(loaded) << to_text(loaded.errors().front());
    const auto plan = make_plan(loaded.value().combinations.front().scenario);
    ASSERT_TRUE(plan) << to_text(plan.errors().front());
    recorders_.clear();
    for (int32_t rank = 0; rank < 3; ++rank)
      recorders_.push_back(Recorder::create(records_path(dir_, rank), rank, 3,
                                            static_cast<uint64_t>(plan.value().record_capacity)));
    evidence_ = run_in_threads(plan.value(), recorders_, cache_, dir_);
  }

  // Steps of the receipts of a rank.
  std::vector<int32_t> receipts(int64_t rank) {
    RankRecords records;
    std::string why;
    EXPECT_TRUE(read_records(records_path(dir_, rank), &records, &why)) << why;
    std::vector<int32_t> steps;
    for (const Event& event : records.events)
      if (event.kind == static_cast<uint16_t>(EventKind::receipt)) steps.push_back(event.step);
    return steps;
  }

  // "step 2 fc1.weight", the first difference from the replay that any rank saw; empty: none.
  std::string first() const {
    const MismatchEvidence* found = nullptr;
    for (const Evidence& rank : evidence_)
      for (const MismatchEvidence& one : rank.mismatches)
        if (one.lane == Lane::replay && (found == nullptr || one.step < found->step)) found = &one;
    return found == nullptr ? "" : "step " + std::to_string(found->step) + " " + found->tensor;
  }

  std::filesystem::path dir_;
  GoldenCache cache_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<Evidence> evidence_;
};

TEST_F(DataMutants, OfAGradientShowInItsTensor) {
  for (const char* operation : {"flip", "drop", "double", "swap", "shift", "stale", "cast"}) {
    run(std::string(R"({"kind": ")") + operation +
        R"(_gradient", "rank": 2, "step": 3, "tensor": "fc2.weight"})");
    EXPECT_EQ(receipts(2), std::vector<int32_t>{3}) << operation;
    EXPECT_EQ(receipts(1), std::vector<int32_t>{}) << operation;
    EXPECT_EQ(first(), "step 3 fc2.weight") << operation;
  }
}

TEST_F(DataMutants, OfAContributionShowInItsBucket) {
  for (const char* operation : {"flip", "drop", "double", "swap", "shift", "stale", "cast"}) {
    run(std::string(R"({"kind": ")") + operation +
        R"(_contribution", "rank": 1, "step": 3, "bucket": 0})");
    EXPECT_THAT(receipts(1), testing::AllOf(testing::Not(testing::IsEmpty()), testing::Each(3)));
    // Bucket 0 holds fc3 and fc2.bias.
    EXPECT_THAT(first(), testing::AnyOf("step 3 fc2.bias", "step 3 fc3.weight", "step 3 fc3.bias"))
        << operation;
    run(std::string(R"({"kind": ")") + operation + R"(_contribution", "rank": 1, "step": 4})");
    EXPECT_GT(receipts(1).size(), 1U) << operation;
    EXPECT_TRUE(first().starts_with("step 4 ")) << operation;
  }
}

TEST_F(DataMutants, OfASumShowAtItsStep) {
  run(R"({"kind": "short_slice", "rank": 1, "step": 2, "bucket": 0, "element": 3})");
  EXPECT_TRUE(first().starts_with("step 2 ")) << first();
  run(R"({"kind": "flip_bit", "rank": 1, "step": 2, "bucket": 0, "element": 1, "bit": 0})");
  EXPECT_TRUE(first().starts_with("step 2 ")) << first();
  run(R"({"kind": "reorder_sum", "step": 2})");
  EXPECT_EQ(receipts(0).size(), receipts(2).size());
  EXPECT_TRUE(first().starts_with("step 2 ")) << first();
}

TEST_F(DataMutants, OfLaunchesShowUnlessAllRanksHaveThem) {
  run(R"({"kind": "swap_launches", "step": 2, "bucket": 0})");
  for (int64_t rank = 0; rank < 3; ++rank) EXPECT_EQ(receipts(rank), std::vector<int32_t>{2});
  EXPECT_EQ(first(), "");
  run(R"({"kind": "swap_launches", "rank": 1, "step": 2, "bucket": 0})");
  const auto rejected = [](const Evidence& rank) { return rank.error.kind == ErrorKind::rejected; };
  EXPECT_TRUE(std::any_of(evidence_.begin(), evidence_.end(), rejected));  // by who came last
}

TEST_F(DataMutants, OfShardsShowAtTheirStep) {
  run(R"({"kind": "stale_shard", "rank": 1, "step": 3})");
  EXPECT_EQ(receipts(1), std::vector<int32_t>{3});
  EXPECT_EQ(first(), "step 3 fc1.weight");
  run(R"({"kind": "shift_shard", "rank": 1, "step": 2})");
  EXPECT_EQ(first(), "step 2 fc1.weight");
  run(R"({"kind": "swap_shards", "rank": 0, "other": 2, "step": 2})");
  EXPECT_EQ(first(), "step 2 fc1.weight");  // another order of addition
}

TEST_F(DataMutants, OfTwoRanksASwapChangesNothing) {
  run(R"({"kind": "swap_shards", "rank": 0, "other": 1, "step": 2})");
  EXPECT_NE(first(), "");
  run(R"({"kind": "swap_shards", "rank": 0, "other": 1, "step": 2})",
      {"/world_size=2", "/communicator/algorithm=rank_order"});
  EXPECT_EQ(receipts(0), std::vector<int32_t>{2});
  EXPECT_EQ(first(), "");
}

TEST_F(DataMutants, OfConstructionAndResumeShowThere) {
  run(R"({"kind": "drop_broadcast", "rank": 2})");
  EXPECT_FALSE(receipts(2).empty());
  EXPECT_TRUE(receipts(1).empty());
  EXPECT_EQ(first(), "step 0 fc1.weight");
  run(R"({"kind": "lose_momentum", "rank": 1})",
      {"/optimizer/momentum=0.9", R"(/checkpoint={"kind": "save_and_resume", "after_step": 2})"});
  EXPECT_EQ(receipts(1), std::vector<int32_t>{2});
  EXPECT_TRUE(first().starts_with("step 3 ")) << first();
}

}  // namespace
}  // namespace lockstep
