#include "sim/tools/program/scenario_run.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

ProgramFinding finding(Verdict verdict, ProgramCause cause = ProgramCause::none) {
  ProgramFinding found;
  found.verdict = verdict;
  found.cause = cause;
  found.step = cause == ProgramCause::none ? 0 : 3;
  found.entry = "gradient of w";
  return found;
}

ProgramResult verified(const ProgramFinding& replica, const ProgramFinding& float64) {
  ProgramResult result;
  result.command = {"python3", "x.py"};
  ProgramWorld& world = result.worlds.emplace_back();
  world.world_size = 2;
  world.lanes = {{ProgramLaneKind::replica, replica, true},
                 {ProgramLaneKind::float64, float64, true}};
  return result;
}

RunResult judged(const Json& expect, RunResult seen, bool interrupted = false) {
  judge_program_expectation(expectation_from(expect), interrupted, &seen);
  return seen;
}

TEST(ProgramExpectation, ALaneStepAndCauseAreHeldAgainstIt) {
  const RunResult seen =
      observed(verified(finding(Verdict::pass), finding(Verdict::fail, ProgramCause::summed_loss)));
  EXPECT_EQ(seen.verdict, Verdict::fail);
  EXPECT_EQ(judged({{"verdict", "fail"},
                    {"cause", "summed_loss"},
                    {"step", 3},
                    {"tensor", "gradient of w"},
                    {"lanes", {{"replica", "pass"}, {"float64", "fail"}}}},
                   seen)
                .met,
            true);
  const RunResult other = judged({{"cause", "divided_twice"}, {"step", 1}}, seen);
  EXPECT_EQ(other.met, false);
  EXPECT_EQ(other.unmet, (std::vector<std::string>{"cause: expected divided_twice, got summed_loss",
                                                   "step: expected 1, got 3"}));
  EXPECT_EQ(judged({{"verdict", "pass"}}, seen).met, false);
  EXPECT_EQ(judged({{"lanes", {{"replay", "pass"}}}}, seen).unmet,
            std::vector<std::string>{"lane replay: expected pass, got none"});
}

TEST(ProgramExpectation, AVoidPassIsNone) {
  ProgramResult result = verified(finding(Verdict::pass), finding(Verdict::pass));
  EXPECT_EQ(judged({{"verdict", "pass"}}, observed(result)).met, true);
  result.worlds[0].lanes[0].control_failed = false;
  const RunResult seen = judged({{"verdict", "pass"}}, observed(result));
  EXPECT_EQ(seen.met, std::nullopt);
  EXPECT_EQ(seen.undecided, Undecided::inconclusive);
}

TEST(ProgramExpectation, WhatIsInconclusiveMeetsNothingElse) {
  const RunResult seen = observed(verified(
      finding(Verdict::pass), finding(Verdict::inconclusive, ProgramCause::padded_samples)));
  EXPECT_EQ(judged({{"verdict", "pass"}}, seen).met, std::nullopt);
  EXPECT_EQ(judged({{"cause", "padded_samples"}}, seen).met, std::nullopt);
  EXPECT_EQ(judged({{"verdict", "inconclusive"}, {"cause", "padded_samples"}}, seen).met, true);
  EXPECT_EQ(judged({{"verdict", "inconclusive"}, {"cause", "unknown"}}, seen).met, false);
  EXPECT_EQ(judged({{"verdict", "inconclusive"}}, seen, true).met, std::nullopt);
}

ProgramRunResult failed(std::optional<int64_t> rank) {
  ProgramRunResult result;
  result.world_size = 3;
  Failure& failure = result.failure.emplace();
  failure.rank = rank;
  failure.kind = "crash";
  failure.step = 4;
  return result;
}

TEST(ProgramExpectation, TheBlamedRankIsHeldAgainstIt) {
  const RunResult seen = observed(failed(1));
  EXPECT_EQ(
      judged({{"outcome", "failed"}, {"primary_rank", 1}, {"kind", "crash"}, {"step", 4}}, seen)
          .met,
      true);
  EXPECT_EQ(judged({{"primary_rank", 2}}, seen).unmet,
            std::vector<std::string>{"primary_rank: expected 2, got 1"});
  EXPECT_EQ(judged({{"verdict", "pass"}}, seen).met, false);
}

// Cut off at its limit it has "failed" as well: nobody may take that for what was expected.
TEST(ProgramExpectation, ARunThatWasCutOffIsUndecided) {
  ProgramRunResult cut = failed(std::nullopt);
  cut.failure.reset();
  cut.why = "it had not ended after 600 s (--limit), and ranks were still at work";
  const RunResult seen = judged({{"outcome", "failed"}}, observed(cut));
  EXPECT_EQ(seen.met, std::nullopt);
  EXPECT_EQ(seen.undecided, Undecided::inconclusive);
}

ProgramScenarioRun run_of_one(const ProgramScenario& scenario, const Json& expect) {
  ProgramScenarioRun run;
  run.scenario = &scenario;
  run.file = "x.json";
  run.verified = verified(finding(Verdict::pass), finding(Verdict::pass));
  run.judged = judged(expect, observed(*run.verified));
  return run;
}

TEST(ProgramScenarioResults, AnUnmetExpectationOutweighsAnUndecidedOne) {
  ProgramScenario scenario;
  scenario.name = "x";
  ProgramScenarioResult result;
  result.verb = "verify";
  result.runs = {run_of_one(scenario, {{"verdict", "pass"}})};
  EXPECT_EQ(exit_code_of(result), 0);
  EXPECT_EQ(program_scenarios_text(result, true), "pass: 1 run as expected\n");
  result.runs.push_back(run_of_one(scenario, {{"verdict", "pass"}}));
  result.runs[1].judged.met = std::nullopt;
  result.runs[1].judged.undecided = Undecided::inconclusive;
  EXPECT_EQ(exit_code_of(result), 3);
  result.runs.push_back(run_of_one(scenario, {{"verdict", "fail"}}));
  EXPECT_EQ(exit_code_of(result), 1);
  EXPECT_EQ(program_scenarios_text(result, true),
            "x: undecided: expected pass, and the run is inconclusive\n"
            "x: not as expected: verdict: expected fail, got pass\n"
            "fail: 3 runs, 1 not as expected, 1 undecided; exit 1\n");
  const Json json = as_json(result);
  EXPECT_EQ(json["runs"][0]["met"], true);
  EXPECT_EQ(json["runs"][1]["met"], Json());
  EXPECT_EQ(json["runs"][1]["undecided"], "inconclusive");
  EXPECT_EQ(json["runs"][2]["unmet"][0], "verdict: expected fail, got pass");
  const TestReport report = test_report(result);
  EXPECT_EQ(report.cases[0].result, TestCase::Result::passed);
  EXPECT_EQ(report.cases[1].result, TestCase::Result::inconclusive);
  EXPECT_EQ(report.cases[2].result, TestCase::Result::failed);
  result.runs[1].verified->signal = 15;
  EXPECT_EQ(exit_code_of(result), 143);
}

}  // namespace
}  // namespace lockstep
