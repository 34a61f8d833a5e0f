#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "sim/tools/program/sweep_result.h"
#include "sim/tools/program/sweep_runs.h"
#include "sim/tools/program/sweep_times.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

const char* const kTimes =
    R"({"rank": 1, "world": 2, "torch": "2.11.0", "given": [null, 4], "steps": 8,
        "buckets": [100, 20], "ends_ns": [1000000, 3000000, 4000000, 9000000], "on_cpu": false})";

Expected<ProgramTimes> read_times(const std::string& text) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("times-" + std::to_string(::getpid()))).string();
  std::ofstream(path) << text;
  auto times = read_program_times(path);
  std::filesystem::remove(path);
  return times;
}

ProgramTimes times_with(int64_t rank, std::vector<double> step_ms) {
  ProgramTimes times;
  times.rank = rank;
  times.given = {std::nullopt};
  times.bucket_bytes = {8};
  times.steps = static_cast<int64_t>(step_ms.size()) + 5;
  times.step_ms = std::move(step_ms);
  return times;
}

Cell cell_with(double cap_mb) {
  Cell cell;
  cell.world_size = 2;
  cell.reducer = "ddp";
  cell.cap_mb = cap_mb;
  return cell;
}

// Rounds of 1 and 25 MiB, in which the first takes `share` of the second's time.
ProgramSweepResult result_with(double share, int64_t rounds) {
  std::vector<SweepRun> runs;
  for (int64_t round = 0; round < rounds; ++round)
    for (const size_t cell : {0, 1}) {
      RunNumbers numbers;
      numbers.step_ms = (10 + static_cast<double>(round % 3)) * (cell == 0 ? share : 1);
      numbers.buckets = 2;
      numbers.steps = 20;
      runs.push_back({cell, round, {}, "not_compared", numbers});
    }
  ProgramSweepResult result;
  result.plan.start.command = {"train"};
  ProgramSweepWorld& world = result.worlds.emplace_back();
  world.world_size = 2;
  world.rounds = rounds;
  world.lines = cell_results({cell_with(1), cell_with(25)}, runs, 1);
  world.contrasts = cap_contrasts(world.lines, 1);
  EXPECT_EQ(
      schema_errors(program_sweep_schema_text(), nlohmann::json::parse(as_json(result).dump())),
      "");
  return result;
}

TEST(ProgramTimes, AreDifferencesOfEnds) {
  const auto times = read_times(kTimes);
  ASSERT_TRUE(times) << to_text(times.errors()[0]);
  EXPECT_EQ(times.value().step_ms, (std::vector<double>{2, 1, 5}));
  EXPECT_EQ(times.value().bucket_bytes, (std::vector<int64_t>{100, 20}));
  EXPECT_EQ(times.value().given, (std::vector<std::optional<double>>{std::nullopt, 4}));
}

TEST(ProgramTimes, OfStrangersAreChecked) {
  std::string text = kTimes;
  for (const auto& [was, is] : {std::pair("3000000", "\"3\""),
                                {"9000000", "10"},
                                {"\"rank\"", "\"r\""},
                                {"[100, 20]", "[0.5]"},
                                {"[null, 4]", "7"},
                                {"[1000000", "[-9223372036854775807"},
                                {"}", ""}}) {
    std::string changed = text;
    changed.replace(changed.find(was), std::string(was).size(), is);
    EXPECT_FALSE(read_times(changed)) << changed;
  }
  EXPECT_NE(to_text(read_times("{\"rank\":\n x").errors()[0])
                .find(":2:2: error: is no file of the agent: unexpected x"),
            std::string::npos);
}

TEST(ProgramTimes, OfAStepAreTheMeanOfItsRanks) {
  const RunNumbers numbers = numbers_of({times_with(0, {10, 20, 90}), times_with(1, {10, 40, 90})});
  EXPECT_EQ(numbers.step_ms, 30);  // median of 10, 30, 90
  EXPECT_EQ(numbers.steps, 3);
  EXPECT_EQ(numbers.buckets, 1);
}

TEST(ProgramTimes, ThatCannotBeMeasuredSayWhy) {
  EXPECT_EQ(why_not_measured({times_with(0, {1, 2, 3}), times_with(1, {1, 2, 3})}, 5), "");
  ProgramTimes plain = times_with(0, {1, 2, 3});
  plain.given.clear();
  EXPECT_NE(why_not_measured({plain}, 5).find("no DistributedDataParallel"), std::string::npos);
  EXPECT_NE(why_not_measured({times_with(0, {1})}, 5).find("--warmup"), std::string::npos);
  EXPECT_NE(why_not_measured({times_with(0, {1, 2, 3}), times_with(1, {1, 2, 3, 4})}, 5)
                .find("rank 0 took 8 steps, and rank 1 took 9"),
            std::string::npos);
}

TEST(ProgramSweep, CapsWithTheSameBucketsAreOne) {
  std::vector<size_t> kept;
  const auto merged = merged_by_buckets({cell_with(1), cell_with(4), cell_with(25), cell_with(100)},
                                        {{3, 3}, {6}, {6}, {6}}, &kept);
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(merged[0].cap_mb, 1);
  EXPECT_EQ(merged[1].cap_mb, 25);  // DDP's default stays
  EXPECT_EQ(merged[1].same_caps_mb, (std::vector<double>{4, 100}));
  EXPECT_EQ(kept, (std::vector<size_t>{0, 2}));
}

TEST(ProgramSweep, RecommendsWhatIsFasterInEnoughRounds) {
  const auto faster = as_json(result_with(0.8, 8))["worlds"][0]["contrast"];
  EXPECT_EQ(faster["recommended_mb"], 1);
  EXPECT_EQ(as_json(result_with(1.3, 8))["worlds"][0]["contrast"]["recommended_mb"], 25);
  EXPECT_TRUE(as_json(result_with(1, 8))["worlds"][0]["contrast"]["recommended_mb"].is_null());
  EXPECT_TRUE(as_json(result_with(0.8, 2))["worlds"][0]["contrast"]["recommended_mb"].is_null());
  EXPECT_EQ(exit_code_of(result_with(1, 8)), 0);
}

TEST(ProgramSweep, HasNoIntervalOfOneRound) {
  const ProgramSweepResult result = result_with(0.8, 1);
  const auto world = as_json(result)["worlds"][0];
  EXPECT_TRUE(world["lines"][0]["step_ms"]["low"].is_null());
  EXPECT_TRUE(world["contrast"]["ratio"]["high"].is_null());
  EXPECT_EQ(result.worlds[0].contrasts[0].text,
            "no significant difference: bucket_cap_mb 1 measured 20.0 % faster than 25 MiB; 1 "
            "round is too few to tell, 6 would do");
  EXPECT_NE(program_sweep_csv(result).find("2,1,2,1,8,,\n"), std::string::npos);
  EXPECT_FALSE(as_json(result_with(0.8, 2))["worlds"][0]["contrast"]["ratio"]["high"].is_null());
}

TEST(ProgramSweep, ConcludesNothingOnABusyMachine) {
  ProgramSweepResult result = result_with(0.8, 8);
  result.worlds[0].watch.verdict = "busy";
  EXPECT_EQ(exit_code_of(result), 3);
  EXPECT_EQ(program_sweep_text(result, false).find("recommended"), std::string::npos);
  EXPECT_TRUE(as_json(result)["worlds"][0]["contrast"].is_null());
  result.plan.allow_busy = true;
  EXPECT_EQ(exit_code_of(result), 0);
  EXPECT_NE(program_sweep_text(result, false).find("recommended: bucket_cap_mb 1"),
            std::string::npos);
}

// 1 and 25 MiB were measured, 5 was not.
ProgramSweepResult predicted_result(double off) {
  ProgramSweepResult result = result_with(0.8, 8);
  result.plan.predicts = true;
  ProgramPrediction& prediction = result.worlds[0].prediction.emplace();
  prediction.caps = {{1, 9, 9 * (1 + off), 9}, {5, 4, 5, std::nullopt}, {25, 2, 11, 11}};
  prediction.mean_off = off / 2;
  prediction.largest_off = off;
  prediction.largest_off_mb = 1;
  prediction.runs = 4;
  prediction.model.emplace();
  EXPECT_EQ(
      schema_errors(program_sweep_schema_text(), nlohmann::json::parse(as_json(result).dump())),
      "");
  return result;
}

TEST(ProgramSweep, TellsWhatWasMeasuredFromWhatIsOnlyPredicted) {
  ProgramSweepResult result = predicted_result(0.04);
  EXPECT_EQ(exit_code_of(result), 0);
  const std::string text = program_sweep_text(result, true);
  EXPECT_NE(text.find("2 ranks: measured: recommended: bucket_cap_mb 1"), std::string::npos)
      << text;
  EXPECT_NE(text.find("2 ranks: predicted: bucket_cap_mb 5 would take 5.00 ms"), std::string::npos);
  EXPECT_NE(text.find("only predicted"), std::string::npos);
  const auto world = as_json(result)["worlds"][0];
  EXPECT_EQ(world["contrast"]["recommended_mb"], 1);
  EXPECT_TRUE(world["prediction"]["caps"][1]["measured_ms"].is_null());
  EXPECT_NE(program_sweep_csv(result).find("2,5,4,0,,,,5\n"), std::string::npos);
  EXPECT_NE(program_sweep_markdown(result).find("predicted: "), std::string::npos);
  result.plan.calibration = "my cal";
  EXPECT_NE(program_sweep_text(result, true).find("lockstep simulate 'my cal'/scenario.json"),
            std::string::npos);
}

TEST(ProgramSweep, IsInconclusiveWherePredictionsAreOff) {
  const ProgramSweepResult result = predicted_result(0.3);
  EXPECT_EQ(exit_code_of(result), 3);
  const std::string text = program_sweep_text(result, false);
  EXPECT_NE(text.find("measured: recommended: bucket_cap_mb 1"), std::string::npos) << text;
  EXPECT_NE(text.find("predicted: inconclusive: predictions are off by 30.0 % at 1 MiB"),
            std::string::npos);
  EXPECT_EQ(text.find("would take"), std::string::npos);
  EXPECT_EQ(test_report(result).cases[0].result, TestCase::Result::inconclusive);
}

TEST(ProgramSweep, PredictsNothingFromABusyMachine) {
  ProgramSweepResult result = predicted_result(0.04);
  result.worlds[0].watch.verdict = "busy";
  EXPECT_EQ(exit_code_of(result), 3);
  EXPECT_EQ(program_sweep_text(result, false).find("would take"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
