#include <gmock/gmock.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>

#include "sim/analysis/metrics.h"
#include "sim/report/trace/trace.h"
#include "tests/sim/analysis/made_mesh.h"

namespace lockstep {
namespace {

using nlohmann::json;

class KinetoTest : public testing::Test {
 protected:
  KinetoTest() : folder_(testing::TempDir() + "lockstep_kineto_" + std::to_string(getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~KinetoTest() override { std::filesystem::remove_all(folder_); }
  json trace(const RunOutcome& outcome, const std::string& kind = "hta") {
    write_trace({folder_ + "/trace.json", kind}, outcome);
    return read("trace.json");
  }
  json read(const std::string& name) {
    std::ifstream file(folder_ + "/" + name);
    return json::parse(file);
  }
  std::string folder_;
};

std::vector<json> of_kind(const json& trace, const std::string& ph, const std::string& cat) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == ph && event.value("cat", "") == cat) found.push_back(event);
  return found;
}

TEST_F(KinetoTest, HasKernelsOfMeasuredStepsWithTheirLaunches) {
  MadeRun run;
  run.world_size = 3;
  run.steps = 4;
  const json all = trace(run.make());
  EXPECT_EQ(all["distributedInfo"]["world_size"], 3);
  const auto kernels = of_kind(all, "X", "kernel"), launches = of_kind(all, "X", "cuda_runtime");
  EXPECT_EQ(kernels.size(), 3u * 3 * (2 + 3)) << "3 ranks, 3 steps, 2 phases and 3 buckets";
  EXPECT_EQ(of_kind(all, "X", "user_annotation").size(), 9u);
  EXPECT_EQ(of_kind(all, "X", "warm-up").size(), 6u);
  std::map<std::pair<int, int>, double> launched;
  for (const json& launch : launches)
    launched[{launch["pid"], launch["args"]["correlation"]}] = launch["ts"];
  for (const json& kernel : kernels)
    EXPECT_EQ((launched.at({kernel["pid"], kernel["args"]["correlation"]})), kernel["ts"]);
  EXPECT_EQ(kernels.front()["name"], "forward");
  EXPECT_EQ(kernels.back()["name"], "ncclKernel_AllReduce");
  EXPECT_EQ(kernels.back()["args"]["bucket"], 2);
}

TEST_F(KinetoTest, SaysOfWhichGroupACollectiveIsWhereThereAreSome) {
  std::map<std::string, int> groups;
  for (const json& call : of_kind(trace(made_mesh(), "kineto"), "X", "communication"))
    if (call["pid"] == 2)
      groups[call["args"]["Process Group Name"].get<std::string>() + " " +
             call["args"]["Process Group Ranks"].get<std::string>() + " " +
             call["args"]["Process Group Description"].get<std::string>()] += 1;
  const std::map<std::string, int> expected = {
      {"0 [0, 1, 2, 3] default_pg", 6}, {"2 [2, 3] undefined", 2}, {"3 [0, 2] column", 2}};
  EXPECT_EQ(groups, expected);
  RunOutcome without = made_mesh();
  without.groups.clear();
  for (const json& call : of_kind(trace(without, "kineto"), "X", "communication"))
    EXPECT_FALSE(call["args"].contains("Process Group Name"));
}

TEST_F(KinetoTest, HasAnArrowForEachBucket) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 2;
  const json all = trace(run.make());
  const auto from = of_kind(all, "s", "bucket"), to = of_kind(all, "f", "bucket");
  ASSERT_EQ(from.size(), 2u * 2 * 3);
  ASSERT_EQ(to.size(), from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i]["id"], to[i]["id"]);
    EXPECT_LT(from[i]["ts"], to[i]["ts"]);
  }
}

TEST_F(KinetoTest, SlicesOfATrackDoNotOverlap) {
  MadeRun run;
  run.transfer_ms = 15;  // collectives of one step overlap
  run.steps = 3;
  run.apart_ms = 4;
  std::map<std::pair<int, int>, double> free;
  const auto kernels = of_kind(trace(run.make()), "X", "kernel");
  bool second = false;
  for (const json& kernel : kernels) {
    double& busy = free[{kernel["pid"], kernel["tid"]}];
    EXPECT_GE(kernel["ts"].get<double>(), busy - 1e-6);
    busy = kernel["ts"].get<double>() + kernel["dur"].get<double>();
    second = second || kernel["tid"] == 21;
  }
  EXPECT_TRUE(second);
}

TEST_F(KinetoTest, MarksFaultsAndWhatNeverEnded) {
  MadeRun run;
  run.steps = 3;
  RunOutcome outcome = run.make();
  outcome.plan.scenario.faults.push_back({FaultKind::stop, {}});
  Event& last = outcome.ranks[1].events.back();
  outcome.ranks[1].events.push_back(
      {last.time_ns - 5000, 0, static_cast<uint16_t>(EventKind::receipt), 5, 3, kFirstFault, 0});
  std::erase_if(outcome.ranks[2].events, [](const Event& e) {
    return e.sequence == 9 && static_cast<EventKind>(e.kind) == EventKind::end;
  });
  const json all = trace(outcome);
  const auto marks = of_kind(all, "i", "fault");
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0]["name"], "fault 0: stop");
  EXPECT_EQ(marks[0]["pid"], 1);
  int64_t unended = 0;
  for (const json& slice : of_kind(all, "X", "communication"))
    unended += !slice["args"]["ended"].get<bool>();
  EXPECT_EQ(unended, 1);
}

TEST_F(KinetoTest, CollectivesAreCalledAsTheirBackendCallsThem) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 3;
  RunOutcome outcome = run.make();
  for (const auto& [kind, name] : {std::pair("gloo", "gloo:all_reduce"),
                                   {"c10d", "gloo:all_reduce"},
                                   {"shm", "shm:all_reduce"},
                                   {"nccl", "ncclKernel_AllReduce"}}) {
    outcome.plan.scenario.communicator.kind = kind;
    const json all = trace(outcome, "kineto");
    const bool nccl = std::string(kind) == "nccl";
    const auto collectives = of_kind(all, "X", nccl ? "kernel" : "communication");
    EXPECT_EQ(collectives.back()["name"], name);
    EXPECT_EQ(all.dump().find("nccl") == std::string::npos, !nccl) << kind;
  }
}

TEST_F(KinetoTest, AFileOfARankHasItsEventsAlone) {
  MadeRun run;
  run.world_size = 3;
  run.steps = 2;
  write_trace({folder_ + "/new/", "kineto"}, run.make());
  for (int rank = 0; rank < 3; ++rank) {
    const json one = read("new/rank-" + std::to_string(rank) + ".json");
    EXPECT_EQ(one["distributedInfo"]["rank"], rank);
    for (const json& event : one["traceEvents"]) EXPECT_EQ(event["pid"], rank);
  }
}

}  // namespace

}  // namespace lockstep
