#include "sim/report/kill_matrix.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "sim/report/terminal.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunResult killed(const std::string& name, bool fails, const Kill& kill) {
  RunResult run;
  run.name = name;
  run.file = name + ".json";
  run.verdict = fails ? Verdict::fail : Verdict::pass;
  run.met = true;
  run.outcome = RunEnding::completed;
  run.lanes = {{Lane::replica, LaneVerdict::pass, ControlVerdict::detected, "", 32, {}, {}},
               {Lane::replay,
                fails ? LaneVerdict::fail : LaneVerdict::pass,
                ControlVerdict::detected,
                "",
                16,
                {},
                {}}};
  run.checks = {{"aliasing", CheckVerdict::pass}};
  run.common_checks = {{"loss_5_percent", CommonVerdict::missed},
                       {"weights_hash", CommonVerdict::missed},
                       {"assert_close", CommonVerdict::found},
                       {"gradient_norm_8_percent", CommonVerdict::not_run}};
  run.kill = kill;
  return run;
}

std::vector<RunResult> runs_of_two() {
  const Kill kill{.hidden = false, .caught = true, .cause_right = true, .place_right = {}};
  return {killed("b01", true, kill), killed("b01", false, kill),
          killed("b02_hidden", false,
                 {.hidden = true, .caught = true, .cause_right = {}, .place_right = {}})};
}

TEST(KillMatrix, HasARowAScenario) {
  EXPECT_EQ(kill_matrix(runs_of_two()).markdown(),
            "| defect | runs | verdict | replica | replay | checks | "
            "failure | late | cause | place | loss 5 % | weights hash | assert_close | norm 8 % |\n"
            "| --- | ---: | --- | --- | --- | --- | --- | --- | --- | --- | --- | "
            "--- | --- | --- |\n"
            "| b01 | 2 | killed | . | 1/2 | . | . |  | x |  | . | . | x |  |\n"
            "| b02_hidden | 1 | hidden | . | . | . | . |  |  |  | . | . | x |  |\n");
}

TEST(KillMatrix, SumsUpWhatTheOthersFound) {
  EXPECT_EQ(
      kill_summary(runs_of_two()),
      "killed: 2 of 2 runs with a defect, by what had to find it, cause and place right; 1 of "
      "1 under conditions that hide the defect showed nothing, as expected\n"
      "the same runs by the checks that are common today: loss_5_percent 0 of 2, "
      "weights_hash 0 of 2, assert_close 2 of 2, gradient_norm_8_percent 0 of 0 that came so "
      "far\n");
  EXPECT_EQ(kill_summary({RunResult()}), "");
}

TEST(KillMatrix, SaysNoToOneThatIsNotWhole) {
  std::vector<RunResult> runs = runs_of_two();
  runs[1].kill->cause_right = false;
  EXPECT_THAT(kill_matrix(runs).markdown(), HasSubstr("| b01 | 2 | no |"));
  EXPECT_THAT(kill_matrix(runs).markdown(), HasSubstr("| 1/2 |  | . | . | x |  |\n"));
  EXPECT_EQ(count_kills(runs).killed, 1);
}

TEST(KillMatrix, StandsInEveryForm) {
  ResultDocument document;
  document.runs = runs_of_two();
  for (RunResult& run : document.runs) run.seed = 1;
  EXPECT_THAT(terminal_text(document, {}), HasSubstr("\ndefect      runs  verdict  replica"));
  EXPECT_THAT(verify_markdown(document), HasSubstr("| scenario | runs |"));
  EXPECT_THAT(verify_markdown(document), HasSubstr("killed: 2 of 2"));
  EXPECT_EQ(as_json(document)["kills"]["common_checks"]["assert_close"]["found"], 2);
  EXPECT_EQ(as_json(document)["runs"][0]["kill"]["cause_right"], true);
  document.runs[0].kill.reset();
  document.runs.resize(1);
  EXPECT_EQ(as_json(document)["kills"], nullptr);
  EXPECT_THAT(terminal_text(document, {}), Not(HasSubstr("defect")));
}

}  // namespace
}  // namespace lockstep
