#include <gmock/gmock.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "scenarios/json/schema.h"
#include "sim/report/document.h"
#include "sim/report/terminal.h"
#include "tests/sim/analysis/made_run.h"
#include "tests/sim/judge/outcomes.h"
#include "tests/sim/report/ci/made_report.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string result_schema_errors(const json& document) {
  return lockstep::schema_errors(result_schema_text(), document);
}

ResultDocument sample() {
  ResultDocument document;
  document.seed = 123;
  document.machine = this_machine();
  document.verdict = Verdict::fail;
  document.exit_code = kExitFail;
  Outcome good;
  Outcome wrong;
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.run_value = std::numeric_limits<double>::quiet_NaN();
  e.ulp = UINT64_MAX;
  wrong.mismatch(1, Lane::replay, e);
  wrong.run.plan.set = {{"/world_size", "4"}, {"/reducer/kind", "\"bucketed\""}};
  Outcome killed;
  killed.stop(2, 2);
  killed.run.ends[2].exit_code = -1;
  killed.run.ends[2].signal = 9;
  killed.run.log_tails[2] = "broken \xff bytes\n";
  document.runs = {good.judge(), wrong.judge(), killed.judge()};
  return document;
}

TEST(Document, FitsItsSchema) {
  const json document = json::parse(to_text(sample()));
  EXPECT_EQ(result_schema_errors(document), "");
  EXPECT_EQ(document["runs"][1]["first_divergence"]["run_value"], "NaN");
  EXPECT_EQ(document["runs"][2]["failure"]["signal"], 9);
  EXPECT_EQ(document["summary"]["runs"], 3);
}

TEST(Document, OfBadInputFitsItsSchemaToo) {
  ResultDocument document;
  document.exit_code = kExitBadInput;
  document.errors = {{"a.json", 7, 3, "/wrld_size", "unknown key \xf0\x28", ""}};
  EXPECT_EQ(result_schema_errors(json::parse(to_text(document))), "");
}

TEST(Document, TheSchemaKnowsEachLane) {
  const json definitions = json::parse(result_schema_text())["definitions"];
  const json& results = definitions["run"]["properties"]["lanes"]["properties"];
  const json& words = definitions["divergence"]["properties"]["lane"]["enum"];
  EXPECT_EQ(results.size(), lanes().size());
  EXPECT_EQ(words.size(), lanes().size());
  for (const LaneRow& row : lanes()) {
    EXPECT_TRUE(results.contains(row.word)) << row.word;
    EXPECT_EQ(std::count(words.begin(), words.end(), row.word), 1) << row.word;
  }
}

TEST(Document, TheSchemaRefusesWhatItDoesNotKnow) {
  json document = json::parse(to_text(sample()));
  document["runs"][0]["verdict"] = "perhaps";
  EXPECT_NE(result_schema_errors(document), "");
  document = json::parse(to_text(sample()));
  document["runs"][0]["new_key"] = 1;
  EXPECT_NE(result_schema_errors(document), "");
  document = json::parse(to_text(sample()));
  document["runs"][0].erase("final_hash");
  EXPECT_NE(result_schema_errors(document), "");
}

TEST(Document, MetricsFollowTheSchema) {
  MadeRun run;
  run.slower = [](int64_t rank, int64_t, Phase) { return MadeRun::Slower{rank == 1 ? 1.5 : 1, 0}; };
  RunOutcome outcome = run.make();
  outcome.plan.scenario.communicator.options.set("algorithm", std::string("ring"));
  outcome.plan.scenario.faults.push_back({FaultKind::slow, {}});
  outcome.ranks[2].events.pop_back();
  for (const bool intervals : {false, true}) {
    ResultDocument document = sample();
    document.runs = {judge_run(outcome, {.intervals = intervals})};
    const json text = json::parse(to_text(document));
    EXPECT_EQ(result_schema_errors(text), "");
    const json& metrics = text["runs"][0]["metrics"];
    EXPECT_EQ(metrics["ranks"].size(), 4u);
    EXPECT_EQ(metrics["left_out"].size(), 1u);
    EXPECT_EQ(metrics.contains("collectives"), intervals);
    EXPECT_EQ(text["runs"][0]["straggler"]["class"], "compute");
  }
  EXPECT_EQ(json::parse(to_text(sample()))["runs"][0]["metrics"], nullptr);
}

TEST(Document, SummaryCountsOnlyWhatPassed) {
  const Summary summary = summary_of(sample().runs);
  EXPECT_EQ(summary.pass, 1);
  EXPECT_EQ(summary.fail, 1);
  EXPECT_EQ(summary.inconclusive, 1);
  EXPECT_EQ(summary.unmet, 1);
  EXPECT_EQ(summary.undecided, 1);
  EXPECT_EQ(summary.tensors_compared, 320);
}

TEST(Files, AreWrittenInOneStep) {
  const std::string folder = testing::TempDir() + "lockstep_files_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/result.json";
  EXPECT_EQ(why_not_writable(path), std::nullopt);
  write_atomically(path, "one");
  write_atomically(path, "two");
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  // Whoever has the old one open keeps it whole.
  std::ifstream old(path);
  write_atomically(path, "three");
  old >> text;
  EXPECT_EQ(text, "two");
  std::filesystem::remove_all(folder);
}

TEST(Files, SayWhyTheyCannotBeWritten) {
  EXPECT_EQ(why_not_writable("/proc/nope/x.json"), "/proc/nope/x.json: No such file or directory");
  EXPECT_EQ(why_not_writable("/"), "/: is a directory");
  EXPECT_THROW(write_atomically("/dev/full", "text"), std::system_error);
}

using testing::HasSubstr;
using testing::Not;

class Earlier : public testing::Test {
 protected:
  ~Earlier() override { std::filesystem::remove(path_); }
  EarlierResult earlier(std::vector<RunResult> runs) {
    ResultDocument document;
    document.runs = std::move(runs);
    std::ofstream(path_) << to_text(document);
    return EarlierResult::load(path_).value();
  }
  const std::string path_ = testing::TempDir() + "lockstep_earlier_" + std::to_string(getpid());
};

TEST_F(Earlier, EveryPairOfThenAndNowHasItsWord) {
  const EarlierResult before =
      earlier({made_run("a", "x=1"), made_failure("a", "x=2"), made_breakdown("a", "x=3")});
  EXPECT_EQ(before.beside(made_run("a", "x=1")), "same");
  EXPECT_EQ(before.beside(made_failure("a", "x=1")), "regression");
  EXPECT_EQ(before.beside(made_breakdown("a", "x=1")), "regression");
  EXPECT_EQ(before.beside(made_run("a", "x=2")), "fixed");
  EXPECT_EQ(before.beside(made_failure("a", "x=2")), "known");
  EXPECT_EQ(before.beside(made_breakdown("a", "x=2")), "changed");
  EXPECT_EQ(before.beside(made_breakdown("a", "x=3")), "known");
  EXPECT_EQ(before.beside(made_failure("a", "x=3")), "changed");
  EXPECT_EQ(before.beside(made_failure("a", "x=4")), "absent");
  EXPECT_EQ(before.beside(made_failure("b", "x=2")), "absent");
}

TEST_F(Earlier, OfTwoAlikeThePassedOneCounts) {
  const EarlierResult before = earlier({made_failure("a", ""), made_run("a", "")});
  EXPECT_EQ(before.beside(made_failure("a", "")), "regression");
}

TEST_F(Earlier, WhatIsKnownDoesNotFailTheInvocation) {
  ResultDocument document;
  document.runs = {made_run("a", "x=1"), made_failure("a", "x=2")};
  EXPECT_EQ(overall_verdict(document.runs), Verdict::fail);
  document.runs[1].baseline = "known";
  EXPECT_EQ(overall_verdict(document.runs), Verdict::pass);
  document.verdict = Verdict::pass;
  EXPECT_EQ(answer_line(document), "pass: 1 of 2 runs as expected, 1 known to the baseline\n");
  const std::string text = terminal_text(document, {});
  EXPECT_THAT(text, HasSubstr("known  a  x=2  not as expected in the baseline either\n"));
  EXPECT_THAT(text, Not(HasSubstr("again")));
  document.runs[1].baseline = "regression";
  EXPECT_EQ(overall_verdict(document.runs), Verdict::fail);
  EXPECT_THAT(failure_text(document.runs[1], Style(false)), HasSubstr("regression"));
}

TEST_F(Earlier, OtherFilesAreBadInput) {
  EXPECT_FALSE(EarlierResult::load("/no/such.json"));
  for (const char* text : {"", "[]", "{}", "{\"runs\": [1]}", "{\"runs\": [{\"name\": \"a\"}]}"}) {
    std::ofstream(path_) << text;
    const auto loaded = EarlierResult::load(path_);
    ASSERT_FALSE(loaded) << text;
    EXPECT_THAT(loaded.errors()[0].message, HasSubstr("--baseline " + path_));
  }
}

}  // namespace

}  // namespace lockstep
