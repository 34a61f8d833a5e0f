#include <gmock/gmock.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "scenarios/parse/suite.h"
#include "sim/cli/simulate_jobs.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<RunPlan> plans_of(const std::string& file, std::vector<std::string> sets = {}) {
  const auto loaded = load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/" + file,
                                         {.sets = std::move(sets), .seed = {}});
  EXPECT_TRUE(loaded) << to_text(loaded.errors().front());
  return make_plans(loaded.value()).value();
}

SimulateDocument simulated(const SimulateVerb& verb, const std::vector<RunPlan>& plans) {
  SimulateDocument document;
  const auto machine = machine_of(verb);
  document.simulated = words_of(verb, machine.value());
  const auto lines = simulate_plans(verb, machine.value(), plans);
  EXPECT_TRUE(lines) << to_text(lines.errors().front());
  if (lines) document.lines = lines.value();
  return document;
}

std::string problems_of(const SimulateDocument& document) {
  return schema_errors(simulate_schema_text(), json::parse(as_json(document).dump()));
}

TEST(Simulate, ResultsFitTheirSchema) {
  for (const char* file : {"stragglers/named_compute.json", "stragglers/stall.json",
                           "faults/kill_mid_bucket.json", "faults/deadlock.json"}) {
    SimulateVerb verb;
    verb.backward_ms = 20;
    EXPECT_EQ(problems_of(simulated(verb, plans_of(file))), "") << file;
  }
}

TEST(Simulate, PredictionsFitTheSchemaAndTellTheChanceOfATimeOut) {
  SimulateVerb verb;
  verb.noise = "lognormal:0.5";
  verb.steps = 500;
  verb.predict = "caps=1;25,worlds=2..8";
  const RunPlan plan = plans_of("stragglers/emulated_resnet50.json",
                                {"/world_size=2", "/timeouts={\"collective_ms\": 150}"})
                           .front();
  SimulateDocument document;
  document.prediction = true;
  const auto machine = machine_of(verb);
  const auto prediction = predict(verb, machine.value(), plan);
  ASSERT_TRUE(prediction) << to_text(prediction.errors().front());
  document.lines = prediction.value().lines;
  document.advice = prediction.value().advice;
  ASSERT_EQ(document.advice.size(), 3u);  // a world size each
  EXPECT_EQ(problems_of(document), "");
  for (const SimulatedLine& line : document.lines) ASSERT_TRUE(line.timeout_chance);
  // Of more ranks one is later.
  EXPECT_GE(document.lines.back().timeout_chance->value,
            document.lines.front().timeout_chance->value);
  EXPECT_GT(document.lines.back().timeout_chance->value, 0.1);
  EXPECT_THAT(to_text(document, Style(false)), HasSubstr("time-outs % of steps"));
}

TEST(Simulate, ARingThatIsAllLatencyIsToldWhatATreeWouldTake) {
  const auto notes = [](const SimulateVerb& verb) {
    const auto plans = plans_of("stragglers/emulated_resnet50.json");
    return simulated(verb, {plans.front()}).lines.front().notes;
  };
  SimulateVerb verb;
  verb.ranks = 1'000'000;
  EXPECT_THAT(notes(verb),
              testing::Contains(HasSubstr("1,999,998 rounds, 119999.9 ms of a bucket's 120")));
  EXPECT_THAT(notes(verb), testing::Contains(HasSubstr("--algorithm double_binary_tree: ")));
  verb.algorithm = "ring";  // they asked for it
  EXPECT_THAT(notes(verb), testing::Not(testing::Contains(HasSubstr("rounds"))));
  verb.algorithm.clear();
  verb.ranks = 64;
  EXPECT_THAT(notes(verb), testing::Not(testing::Contains(HasSubstr("rounds"))));
}

TEST(Simulate, HostsThatFailMakeARunLonger) {
  SimulateVerb verb;
  verb.ranks = 16'384;
  verb.ranks_per_host = 8;
  verb.mtbf_hours = 6328;
  verb.work_hours = 54 * 24;
  verb.checkpoint_s = 60;
  verb.restart_s = 600;
  const auto plans = plans_of("stragglers/emulated_resnet50.json");
  const SimulateDocument document = simulated(verb, {plans.front()});
  ASSERT_TRUE(document.lines[0].over_days);
  const SimulatedLine::OverDays& days = *document.lines[0].over_days;
  EXPECT_EQ(days.run.hosts, 2048);
  EXPECT_TRUE(days.best_interval);
  EXPECT_NEAR(days.numbers.failures, 490, 25);
  EXPECT_NEAR(days.numbers.elapsed_ns, days.expected_ns, 0.005 * days.expected_ns);
  EXPECT_EQ(problems_of(document), "");
  EXPECT_THAT(to_text(document, Style(false)), HasSubstr("goodput"));
}

TEST(Simulate, OptionsOfFailingHostsGoTogether) {
  SimulateVerb verb;
  verb.restart_s = 5;
  ASSERT_EQ(long_run_errors(verb).size(), 1u);
  EXPECT_THAT(long_run_errors(verb)[0].message, HasSubstr("--restart-s without --mtbf-hours"));
  verb.mtbf_hours = 10;
  ASSERT_EQ(long_run_errors(verb).size(), 1u);
  EXPECT_THAT(long_run_errors(verb)[0].message, HasSubstr("--mtbf-hours without --checkpoint-s"));
  verb.checkpoint_s = 1;
  EXPECT_TRUE(long_run_errors(verb).empty());
}

TEST(Simulate, HierarchicalIsNotFasterThanTheLinksOfAMachineWithoutHosts) {
  SimulateVerb verb;
  verb.machine = "10gbe";
  verb.ranks = 16;
  const auto step_ms = [&](const std::string& algorithm) {
    verb.algorithm = algorithm;
    const auto plans = plans_of("stragglers/emulated_resnet50.json");
    return simulated(verb, {plans.front()}).lines.front().numbers.step_ms;
  };
  EXPECT_NEAR(step_ms("hierarchical"), step_ms("ring"), 0.01 * step_ms("ring"));
}

// It was fitted, or compared with runs, as the file has it.
TEST(Simulate, AMachineWithOtherLinksWasNeverCompared) {
  SimulateVerb verb;
  verb.machine = testing::TempDir() + "compared_machine.json";
  std::ofstream(verb.machine) << R"({"format": "lockstep_machine", "version": 1,
      "accuracy": {"step_error": 0.01}, "alternatives": [{"compute": 1.1, "sync_ranks": 8}]})";
  EXPECT_TRUE(machine_of(verb).value().accuracy);
  EXPECT_EQ(machine_of(verb).value().alternatives.at(0).sync_ranks, 8);
  verb.bandwidth_mb_per_s = 1000;
  const MachineModel other = machine_of(verb).value();
  EXPECT_FALSE(other.accuracy);
  EXPECT_TRUE(other.alternatives.empty());
  EXPECT_THAT(other.why_not_compared, HasSubstr("--bandwidth-mb-per-s"));
}

// Whatever the ranks whose slowest all wait for: one note, with numbers that the scenario has.
TEST(Simulate, ComputeThatWasNeverComparedIsTheScenarios) {
  SimulateVerb verb;
  verb.machine = testing::TempDir() + "compared_compute.json";
  std::ofstream(verb.machine) << R"({"format": "lockstep_machine", "version": 1,
      "rank_spread": 0.015,
      "accuracy": {"step_error": 0.01, "forward_ms": 110, "backward_ms": 220}})";
  const auto plans = plans_of("stragglers/emulated_resnet50.json");
  for (const int64_t ranks : {4, 16}) {
    verb.ranks = ranks;
    const auto notes = simulated(verb, {plans.front()}).lines.front().notes;
    EXPECT_THAT(notes, testing::Contains(HasSubstr("this is 100 + 200: ")));
  }
}

TEST(Simulate, SizesThatWereNotMeasuredAreTold) {
  SimulateVerb verb;
  verb.machine = testing::TempDir() + "measured_machine.json";
  std::ofstream(verb.machine) << R"({"format": "lockstep_machine", "version": 1,
      "tables": [{"ranks": 4, "rows": [[8, 30], [524288, 35]]}]})";
  verb.ranks = 4;
  const auto plans = plans_of("stragglers/emulated_resnet50.json");
  const auto notes = simulated(verb, {plans.front()}).lines.front().notes;
  EXPECT_THAT(notes, testing::Contains(HasSubstr("larger than anything measured at 4 ranks "
                                                 "(524,288 bytes)")));
}

TEST(Simulate, MachinesHaveWords) {
  SimulateVerb verb;
  verb.machine = "100gbe";
  EXPECT_EQ(machine_of(verb).value().cost.link, (LinkCost{25'000, 80'000, 0}));
  verb.machine = "dgx_h100";
  const MachineModel hosts = machine_of(verb).value();
  EXPECT_EQ(hosts.algorithm, Algorithm::hierarchical);
  EXPECT_EQ(hosts.cost.ranks_per_host, 8);
  EXPECT_EQ(hosts.cost.across.beta_fs_per_byte, 20'000);
  verb.machine = "1000gbe";
  EXPECT_FALSE(machine_of(verb));  // nor a file
}

TEST(Simulate, LevelsOfAveragingAreReadOrRefused) {
  EXPECT_EQ(averaging_of("8:2,64:16").value(), (std::vector<Averaging>{{8, 2, 0}, {64, 16, 0}}));
  for (const char* words : {"8", "8:", "x:2", "0:2", "8:2.5", "8:2,,"})
    EXPECT_FALSE(averaging_of(words)) << words;
}

}  // namespace

}  // namespace lockstep
