#include "sim/tools/program/result.h"

#include <gtest/gtest.h>
#include <csignal>
#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

ProgramLane lane(ProgramLaneKind kind, Verdict verdict, bool control = true) {
  ProgramLane made{kind, {}, control};
  made.finding.verdict = verdict;
  made.finding.steps = 24;
  if (verdict == Verdict::fail) {
    made.finding.cause = ProgramCause::summed_loss;
    made.finding.step = 3;
    made.finding.entry = "gradient of w";
    made.finding.line = "train.py:9";
  }
  if (verdict != Verdict::pass) made.finding.words = "evidence\x1b[2J";
  return made;
}

ProgramResult result_of(const std::vector<ProgramLane>& lanes, const std::string& not_run = "") {
  ProgramResult made;
  made.command = {"python3", "train.py"};
  made.worlds.push_back({2, {lane(ProgramLaneKind::replica, Verdict::pass)}});
  made.worlds.push_back({3, lanes, not_run});
  EXPECT_EQ(schema_errors(program_schema_text(), nlohmann::json::parse(as_json(made).dump())), "");
  return made;
}

TEST(ProgramResult, AFailureOutweighsWhatCouldNotBeJudgedAndThatAPass) {
  const auto pass = lane(ProgramLaneKind::replica, Verdict::pass);
  const auto undecided = lane(ProgramLaneKind::float64, Verdict::inconclusive);
  const auto fail = lane(ProgramLaneKind::float64, Verdict::fail);
  EXPECT_EQ(exit_code_of(result_of({pass})), kExitPass);
  EXPECT_EQ(exit_code_of(result_of({pass, undecided})), kExitInconclusive);
  EXPECT_EQ(exit_code_of(result_of({undecided, fail})), kExitFail);
  EXPECT_EQ(exit_code_of(result_of({fail, undecided})), kExitFail);
  EXPECT_EQ(exit_code_of(result_of({}, "it never trained")), kExitInconclusive);
}

TEST(ProgramResult, APassWhoseControlDidNotFailIsVoid) {
  const auto made = result_of({lane(ProgramLaneKind::float64, Verdict::pass, false)});
  EXPECT_EQ(exit_code_of(made), kExitInconclusive);
  EXPECT_EQ(as_json(made)["worlds"][1]["lanes"]["float64"]["verdict"], "void");
  EXPECT_EQ(test_report(made).cases[1].result, TestCase::Result::inconclusive);
  EXPECT_NE(program_text(made, false).find("lane float64  void: "), std::string::npos);
}

TEST(ProgramResult, AFailureHasStepEntryCauseAndLine) {
  const auto made = result_of({lane(ProgramLaneKind::float64, Verdict::fail)});
  const auto found = as_json(made)["worlds"][1]["lanes"]["float64"];
  EXPECT_EQ(found["step"], 3);
  EXPECT_EQ(found["entry"], "gradient of w");
  EXPECT_EQ(found["cause"], "summed_loss");
  EXPECT_EQ(found["line"], "train.py:9");
  EXPECT_EQ(test_report(made).cases[1].kind, "summed_loss");
  EXPECT_EQ(program_text(made, true), "fail; exit 1\n");
}

TEST(ProgramResult, ARunThatCertainlyFailedIsAFailureInTheWordsOfRun) {
  auto made = result_of({}, "rank 1 ended with exit code 1");
  EXPECT_EQ(exit_code_of(made), kExitInconclusive);
  ProgramRunResult& failed = made.worlds[1].failed.emplace();
  failed.ranks.resize(3);
  failed.ends = {"ended by lockstep", "exit code 1", "ended by lockstep"};
  failed.failure.emplace();
  failed.failure->rank = 1;
  failed.failure->kind = "exit";
  failed.failure->message = "rank 1 exited with code 1";
  failed.failure->secondary = {0, 2};
  EXPECT_EQ(exit_code_of(made), kExitFail);
  const nlohmann::json json = nlohmann::json::parse(as_json(made).dump());
  EXPECT_EQ(schema_errors(program_schema_text(), json), "");
  EXPECT_EQ(json["worlds"][1]["failure"]["rank"], 1);
  EXPECT_TRUE(json["worlds"][0]["failure"].is_null());
  EXPECT_EQ(test_report(made).cases[1].kind, "exit");
  EXPECT_NE(
      program_text(made, false)
          .find("  broke off: rank 1 exited with code 1\n  victim rank 0: ended by lockstep\n"),
      std::string::npos);
}

TEST(ProgramResult, ASignalIsNoPass) {
  auto made = result_of({});
  made.signal = SIGTERM;
  EXPECT_EQ(exit_code_of(made), 128 + SIGTERM);
  EXPECT_EQ(as_json(made)["verdict"], "inconclusive");
}

}  // namespace
}  // namespace lockstep
