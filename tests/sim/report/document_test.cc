#include "sim/report/document.h"
#include "scenarios/json/schema.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "sim/campaign/tally.h"
#include "tests/sim/judge/made_run.h"
#include "tests/sim/judge/outcomes.h"
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
  document.verdict = "fail";
  document.exit_code = kExitFail;
  Outcome good;
  Outcome wrong;
  MismatchEvidence e = gradient_evidence("replay", 1);
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

TEST(Document, OfACampaignMatchesItsSchemaToo) {
  ResultDocument document = sample();
  RunResult failed, passed;
  failed.name = "a";
  failed.failure.emplace().after_ms = 12.5;
  passed.name = "b";
  json whole = as_json(document);
  whole["campaign"] = {{"seed", 3},
                       {"kinds", as_json(tally({failed, passed}, {{"a", "kill"}, {"b", "none"}}))}};
  EXPECT_EQ(result_schema_errors(whole), "");
  whole["campaign"]["kinds"][0]["more"] = 1;
  EXPECT_NE(result_schema_errors(whole), "");
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

}  // namespace
}  // namespace lockstep
