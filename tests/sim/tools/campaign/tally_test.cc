#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include "scenarios/json/schema.h"
#include "sim/analysis/rate_bound.h"
#include "sim/report/document.h"
#include "sim/tools/campaign/tally.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

RunResult run_with(Verdict verdict, double statistic) {
  RunResult run;
  run.name = "clean-1";
  run.verdict = verdict;
  run.outcome = RunEnding::completed;
  LaneResult replay, rounding;
  replay.lane = Lane::replay;
  replay.verdict = from_word<LaneVerdict>(to_word(verdict)).value();
  replay.reason = "rank 1 differs";
  rounding.lane = Lane::rounding;
  rounding.verdict = LaneVerdict::pass;
  rounding.statistic = statistic;
  run.lanes = {replay, rounding};
  return run;
}

TEST(CleanTally, AFailIsAFalseAlarmAndAnInconclusiveRunIsNot) {
  RunResult undecided = run_with(Verdict::inconclusive, 1);
  undecided.outcome = RunEnding::failed;
  const CleanTally counted =
      tally({clean_run_of(run_with(Verdict::pass, 2)), clean_run_of(run_with(Verdict::fail, 0.5)),
             clean_run_of(undecided)});
  EXPECT_EQ(counted.runs, 3);
  EXPECT_EQ(counted.passed, 1);
  EXPECT_EQ(counted.accused, 1);
  EXPECT_EQ(counted.undecided, 1);
  EXPECT_EQ(counted.failed, 1);
  EXPECT_EQ(counted.statistics, (std::vector<double>{0.5, 1, 2}));
  ASSERT_EQ(counted.lanes.size(), lanes().size());
  EXPECT_EQ(counted.lanes[1].lane, Lane::replay);
  EXPECT_EQ(counted.lanes[1].fail, 1);
  EXPECT_EQ(counted.lanes[3].pass, 3);
  const auto json = as_json(counted);
  EXPECT_EQ(json["rounding_statistic"]["median"], 1);
  EXPECT_EQ(json["rounding_statistic"]["largest"], 2);
  EXPECT_EQ(json["lanes"]["replay"]["undecided"], 1);
}

TEST(CleanTally, SaysWhyARunDidNotPass) {
  EXPECT_EQ(clean_run_of(run_with(Verdict::fail, 1)).why, "lane replay: fail: rank 1 differs");
  EXPECT_EQ(clean_run_of(run_with(Verdict::pass, 1)).why, "");
}

TEST(CleanTally, TheBoundIsClopperAndPearsons) {
  EXPECT_NEAR(rate_bound_95(0, 10'000), 1 - std::pow(0.05, 1e-4), 1e-12);
  EXPECT_NEAR(rate_bound_95(0, 10'000), 3e-4, 1e-5);  // the rule of three
  EXPECT_NEAR(rate_bound_95(0, 200), 1 - std::pow(0.05, 1.0 / 200), 1e-12);
  // qbeta(0.95, 3, 98) of R
  EXPECT_NEAR(rate_bound_95(2, 100), 0.06162, 1e-4);
  EXPECT_EQ(rate_bound_95(0, 0), 1);
  EXPECT_EQ(rate_bound_95(5, 5), 1);
}

nlohmann::ordered_json case_of(const std::string& kind) {
  return {{"mutants", nlohmann::ordered_json::array({{{"kind", kind}}})},
          {"expect", {{"step", 2}}}};
}

RunResult mutant_run_with(Verdict verdict, std::optional<bool> met, const std::string& hash) {
  RunResult run;
  run.name = "mutant-1";
  run.verdict = verdict;
  run.outcome = RunEnding::completed;
  run.met = met;
  run.final_hash = run.state_hash = hash;
  run.acted = true;
  run.again = "again";
  run.unmet = {"step: expected 2, got 3"};
  return run;
}

TEST(MutantTally, AFailureIsCaughtWhereItHadToBe) {
  const MutantRun caught =
      end_of(mutant_run_with(Verdict::fail, true, "a"), case_of("drop_bucket"), nullptr);
  EXPECT_EQ(caught.end, MutantEnd::caught);
  EXPECT_TRUE(caught.unmet.empty());
  const MutantRun elsewhere =
      end_of(mutant_run_with(Verdict::fail, false, "a"), case_of("drop_bucket"), nullptr);
  EXPECT_EQ(elsewhere.end, MutantEnd::elsewhere);
  EXPECT_EQ(elsewhere.unmet.size(), 1U);
}

TEST(MutantTally, RanksThatFailAreNoticedToo) {
  RunResult failed = mutant_run_with(Verdict::inconclusive, std::nullopt, "a");
  failed.outcome = RunEnding::failed;
  EXPECT_FALSE(needs_twin(failed));
  EXPECT_EQ(end_of(failed, case_of("k"), nullptr).end, MutantEnd::elsewhere);
  failed.failure.emplace().step = 2;
  EXPECT_EQ(end_of(failed, case_of("k"), nullptr).end, MutantEnd::caught);
  failed.failure->step = 3;
  EXPECT_EQ(end_of(failed, case_of("k"), nullptr).end, MutantEnd::elsewhere);
}

TEST(MutantTally, APassIsEquivalentOnlyWithTheHashesOfTheCleanRun) {
  const RunResult run = mutant_run_with(Verdict::pass, false, "a");
  EXPECT_TRUE(needs_twin(run));
  const RunResult same = mutant_run_with(Verdict::pass, true, "a"),
                  other = mutant_run_with(Verdict::pass, true, "b");
  EXPECT_EQ(end_of(run, case_of("k"), &same).end, MutantEnd::equivalent);
  EXPECT_EQ(end_of(run, case_of("k"), &other).end, MutantEnd::missed);
  EXPECT_EQ(end_of(run, case_of("k"), nullptr).end, MutantEnd::missed);
  RunResult half = same;
  half.state_hash = "b";  // the same weights in the end, but another way there
  EXPECT_EQ(end_of(run, case_of("k"), &half).end, MutantEnd::missed);
}

TEST(MutantTally, WhatIsNotDecidedProvesNothing) {
  const RunResult run = mutant_run_with(Verdict::inconclusive, std::nullopt, "a");
  const RunResult same = mutant_run_with(Verdict::pass, true, "a");
  EXPECT_EQ(end_of(run, case_of("k"), &same).end, MutantEnd::missed);
  RunResult far = run;  // of lane float64 alone: its double went another way
  far.lanes = {
      {Lane::replay, LaneVerdict::pass, ControlVerdict::detected, "", 9, {}, {}},
      {Lane::float64, LaneVerdict::inconclusive, ControlVerdict::detected, "", 9, 2e-12, {}}};
  EXPECT_EQ(end_of(far, case_of("k"), &same).end, MutantEnd::equivalent);
  far.lanes[0].verdict = LaneVerdict::inconclusive;
  EXPECT_EQ(end_of(far, case_of("k"), &same).end, MutantEnd::missed);
  const RunResult bad_twin = mutant_run_with(Verdict::fail, false, "a");
  EXPECT_EQ(end_of(mutant_run_with(Verdict::pass, false, "a"), case_of("k"), &bad_twin).end,
            MutantEnd::missed);
}

TEST(MutantTally, CountsByKind) {
  const RunResult same = mutant_run_with(Verdict::pass, true, "a");
  RunResult idle = mutant_run_with(Verdict::pass, false, "a");
  idle.acted = false;
  const std::vector<MutantRun> runs = {
      end_of(mutant_run_with(Verdict::fail, true, "a"), case_of("b"), nullptr),
      end_of(mutant_run_with(Verdict::pass, false, "a"), case_of("a"), &same),
      end_of(idle, case_of("a"), &same),
      end_of(mutant_run_with(Verdict::pass, false, "a"), case_of("a"), nullptr)};
  const auto tallies = tally(runs);
  ASSERT_EQ(tallies.size(), 2U);
  EXPECT_EQ(tallies[0].kind, "a");
  EXPECT_EQ(tallies[0].equivalent, 2);
  EXPECT_EQ(tallies[0].idle, 1);
  EXPECT_EQ(tallies[0].missed, 1);
  const MutantTally all = sum_of(tallies);
  EXPECT_EQ(all.runs, 4);
  EXPECT_EQ(all.caught, 1);
  const auto json = not_caught_json(runs);
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[0]["end"], "equivalent");
  EXPECT_EQ(json[0]["state_hash"], json[0]["twin_hash"]);
  EXPECT_EQ(json[2]["again"], "again");
}

TEST(Campaign, ItsResultMatchesTheSchemaOfResults) {
  RunResult failed, passed;
  failed.name = "a";
  failed.failure.emplace().after_ms = 12.5;
  passed.name = "b";
  nlohmann::json whole = as_json(ResultDocument());
  whole["campaign"] = {{"seed", 3},
                       {"kinds", as_json(tally({failed, passed}, {{"a", "kill"}, {"b", "none"}}))}};
  EXPECT_EQ(schema_errors(result_schema_text(), whole), "");
  whole["campaign"]["kinds"][0]["more"] = 1;
  EXPECT_NE(schema_errors(result_schema_text(), whole), "");
}

}  // namespace

}  // namespace lockstep
