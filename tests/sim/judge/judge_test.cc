#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <limits>

#include "sim/judge/judge.h"
#include "sim/plan/plans.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;

Outcome wrong() {
  Outcome outcome;
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.one_ratio = true;
  e.ratio = 0.8;
  for (size_t rank = 0; rank < 4; ++rank) outcome.mismatch(rank, Lane::replay, e);
  return outcome;
}

TEST(Expectation, OfAFailureWithItsCauseIsMet) {
  Outcome outcome = wrong();
  outcome.run.plan.scenario.expect = {{}};
  outcome.run.plan.scenario.expect[0].verdict = Verdict::fail;
  outcome.run.plan.scenario.expect[0].cause = "wrong_divisor";
  outcome.run.plan.scenario.expect[0].step = 1;
  const RunResult result = outcome.judge();
  EXPECT_EQ(result.met, true);
  EXPECT_EQ(result.expected, "fail, cause wrong_divisor, step 1");
}

TEST(Expectation, SaysWhatDiffers) {
  Outcome outcome = wrong();
  auto& expect = outcome.run.plan.scenario.expect[0];
  expect.verdict = Verdict::fail;
  expect.cause = "order_only";
  expect.tensor = "fc2.weight";
  expect.bucket = 2;
  expect.lanes = {{Lane::replica, LaneVerdict::pass}, {Lane::replay, LaneVerdict::pass}};
  expect.checks = {{"collective_log", CheckVerdict::pass}, {"aliasing", CheckVerdict::fail}};
  const RunResult result = outcome.judge();
  EXPECT_EQ(result.met, false);
  EXPECT_THAT(result.unmet,
              ElementsAre("cause: expected order_only, got wrong_divisor",
                          "bucket: expected 2, got 1", "lane replay: expected pass, got fail",
                          "check aliasing: expected fail, got not_run"));
  EXPECT_THAT(result.expected, EndsWith("check collective_log pass, check aliasing fail"));
}

TEST(StateHash, IsOfEveryRanksStateAfterEveryStep) {
  const Outcome clean;
  const std::string hash = clean.judge().state_hash;
  EXPECT_EQ(hash.size(), 32U);
  EXPECT_EQ(Outcome().judge().state_hash, hash);
  for (int32_t kind = 0; kind < 4; ++kind) {
    Outcome other;
    other.part(2, kind, 3);
    if (kind == 1) continue;  // these outcomes have no buffers
    EXPECT_NE(other.judge().state_hash, hash) << kind;
  }
  EXPECT_FALSE(clean.judge().acted);
  Outcome acted;
  acted.add(1, EventKind::receipt, 2, 0);
  EXPECT_TRUE(acted.judge().acted);
  EXPECT_EQ(acted.judge().state_hash, hash);
}

TEST(Expectation, APassThatShouldHaveFailedIsUnmet) {
  Outcome outcome;
  outcome.run.plan.scenario.expect[0].verdict = Verdict::fail;
  outcome.run.plan.scenario.expect[0].cause = "wrong_divisor";
  EXPECT_EQ(outcome.judge().met, false);
  EXPECT_THAT(outcome.judge().unmet, Contains("cause: expected wrong_divisor, got none"));
}

Outcome killed() {
  Outcome outcome;
  outcome.stop(2, 2);
  outcome.run.ends[2].exit_code = -1;
  outcome.run.ends[2].signal = 9;
  return outcome;
}

TEST(Expectation, OfAFailedOutcomeDoesNotCountLanes) {
  Outcome outcome = killed();
  auto& expect = outcome.run.plan.scenario.expect[0];
  expect = {};
  expect.outcome = RunEnding::failed;
  expect.primary_rank = 2;
  expect.kind = "crash";
  expect.within_ms = 500;
  EXPECT_EQ(outcome.judge().verdict, Verdict::inconclusive);
  EXPECT_EQ(outcome.judge().met, true);
  expect.primary_rank = 1;
  EXPECT_EQ(outcome.judge().met, false);
  expect.primary_rank = 2;
  expect.within_ms = 100;
  EXPECT_THAT(outcome.judge().unmet, ElementsAre("within_ms: expected at most 100, got 420"));
}

TEST(Expectation, OfInconclusiveIsMetByIt) {
  Outcome outcome = killed();
  outcome.run.plan.scenario.expect[0].verdict = Verdict::inconclusive;
  EXPECT_EQ(outcome.judge().met, true);
  outcome.run.interrupted = true;
  EXPECT_EQ(outcome.judge().met, std::nullopt);
}

std::vector<Expectation> fail_before(const std::string& version) {
  std::vector<Expectation> expect(2);
  expect[0].libtorch = "<" + version;
  expect[0].verdict = Verdict::fail;
  expect[1].verdict = Verdict::pass;
  return expect;
}

TEST(Expectation, MayDependOnLibTorch) {
  Outcome outcome = wrong();
  outcome.run.plan.scenario.expect = fail_before("2.4");
  outcome.run.libtorch = "1.13.1";
  EXPECT_EQ(outcome.judge().met, true);
  outcome.run.libtorch = "2.14.1";
  EXPECT_EQ(outcome.judge().met, false);
  EXPECT_EQ(outcome.judge().expected, "pass");
}

TEST(Expectation, WithoutTheVersionThatDecidesIsOpen) {
  Outcome outcome = wrong();
  outcome.run.plan.scenario.expect = fail_before("2.4");
  EXPECT_EQ(outcome.judge().met, std::nullopt);
  EXPECT_EQ(outcome.judge().verdict, Verdict::fail);
  outcome.run.plan.scenario.expect.erase(outcome.run.plan.scenario.expect.begin());
  EXPECT_EQ(outcome.judge().met, false);
}

TEST(Checks, AFailedOneFailsTheRun) {
  Outcome outcome;
  outcome.add(1, EventKind::check, 0, static_cast<int32_t>(Check::manifest), 0);
  EXPECT_EQ(outcome.judge().verdict, Verdict::fail);
  EXPECT_THAT(outcome.judge().checks, Contains(Pair("aliasing", CheckVerdict::not_run)));
  EXPECT_THAT(outcome.judge().checks, Contains(Pair("collective_log", CheckVerdict::pass)));
}

TEST(Checks, EachIsKnownByItsOwnEvents) {
  const std::pair<Check, std::string> all[] = {{Check::manifest, "manifest"},
                                               {Check::absent_gradients, "absent_gradients"},
                                               {Check::aliasing, "aliasing"}};
  for (const auto& [check, name] : all) {
    Outcome outcome;
    outcome.add(2, EventKind::check, 1, static_cast<int32_t>(check), 0);
    outcome.add(3, EventKind::check, 1, static_cast<int32_t>(check), 1);
    for (const auto& [other, verdict] : outcome.judge().checks) {
      if (other == "collective_log") continue;
      EXPECT_EQ(verdict, other == name ? CheckVerdict::fail : CheckVerdict::not_run) << other;
    }
    EXPECT_EQ(outcome.judge().verdict, Verdict::fail);
  }
}

TEST(Checks, AFailedOneIsKnownByItsReasonWhereItsEventWasDropped) {
  Outcome outcome;
  Evidence evidence;
  evidence.check_reasons = {{Check::manifest, 1, 0, "rank 1: fc1.weight differs from rank 0's"}};
  outcome.run.evidence[1] = to_json_text(evidence);
  EXPECT_EQ(outcome.judge().verdict, Verdict::fail);
  EXPECT_THAT(outcome.judge().checks, Contains(Pair("manifest", CheckVerdict::fail)));
  EXPECT_THAT(outcome.judge().checks, Contains(Pair("aliasing", CheckVerdict::not_run)));
}

Outcome with_golden(const std::string& json_text) {
  Outcome outcome;
  outcome.run.plan.scenario.golden = "/goldens/made.json";
  Evidence evidence;
  evidence.golden = json_text;
  outcome.run.evidence[0] = to_json_text(evidence);
  return outcome;
}

TEST(StoredGolden, DecidesWithTheLanes) {
  EXPECT_EQ(with_golden(R"({"verdict":"pass"})").judge().verdict, Verdict::pass);
  EXPECT_EQ(with_golden(R"({"verdict":"not_applicable"})").judge().verdict, Verdict::pass);
  EXPECT_EQ(with_golden(R"({"verdict":"fail"})").judge().verdict, Verdict::fail);
}

TEST(StoredGolden, ThatNobodyComparedWithIsInconclusive) {
  for (const char* damaged : {"", "{}", R"({"verdict":7})", "no json"})
    EXPECT_EQ(with_golden(damaged).judge().verdict, Verdict::inconclusive) << damaged;
  const auto json = as_json(with_golden("").judge());
  EXPECT_EQ(json["golden"]["path"], "/goldens/made.json");
  EXPECT_EQ(json["golden"]["reason"], "no rank reached the comparison");
}

TEST(Checks, CollectiveLogNamesTheFirstOtherCall) {
  Outcome outcome;
  for (Event& e : outcome.run.ranks[1].events) {
    const auto kind = static_cast<EventKind>(e.kind);
    if (kind == EventKind::collective_hash && e.step >= 2) e.value ^= 1;
    if (kind == EventKind::arrival && e.sequence == 2) e.value = pack_collective(1, 7, 800);
  }
  const RunResult result = outcome.judge();
  EXPECT_EQ(result.verdict, Verdict::fail);
  EXPECT_THAT(result.check_reasons,
              ElementsAre("collective_log: up to step 2, rank 0 called all_reduce 2 (bucket 0, 400 "
                          "bytes) of float32, rank 1 called all_reduce 2 (bucket 0, 800 bytes) of "
                          "float64"));
}

TEST(Checks, OtherCollectivesAreTheCauseOfAFailureAfterThem) {
  Outcome outcome = killed();
  EXPECT_EQ(outcome.judge().failure->cause, "");
  for (Event& e : outcome.run.ranks[1].events)
    if (static_cast<EventKind>(e.kind) == EventKind::arrival && e.sequence == 2)
      e.value = pack_collective(1, 7, 800);
  EXPECT_EQ(outcome.judge().failure->cause, "collective_mismatch");
}

TEST(Control, OfASecondRunMakesItsLaneVoidWhereItDoesNotFail) {
  Outcome exact(4, 3, {Lane::exact});
  std::vector<RunResult> results = {exact.judge()};
  EXPECT_EQ(results[0].met, true);
  Outcome control = exact;
  control.run.plan.control = "random_data";
  apply_control(control.judge(), &results);
  EXPECT_EQ(results[0].lanes[0].verdict, LaneVerdict::voided);
  EXPECT_EQ(results[0].verdict, Verdict::inconclusive);
  EXPECT_EQ(results[0].met, std::nullopt);
  EXPECT_EQ(overall_verdict(results), Verdict::inconclusive);
}

TEST(Control, ThatFailsLeavesTheLane) {
  Outcome exact(4, 3, {Lane::exact});
  std::vector<RunResult> results = {exact.judge()};
  Outcome control = exact;
  control.run.plan.control = "random_data";
  control.mismatch(0, Lane::exact, gradient_evidence(Lane::exact, 1));
  apply_control(control.judge(), &results);
  EXPECT_EQ(results[0].verdict, Verdict::pass);
}

TEST(Control, OfAnotherFileOrLaneSaysNothing) {
  Outcome exact(4, 3, {Lane::exact});
  Outcome replica(4, 3, {Lane::replica});
  Outcome control = exact;
  control.run.plan.control = "random_data";
  std::vector<RunResult> results = {replica.judge()};
  apply_control(control.judge(), &results);
  EXPECT_EQ(results[0].verdict, Verdict::pass);
  results = {exact.judge()};
  control.run.plan.file = "other.json";
  apply_control(control.judge(), &results);
  EXPECT_EQ(results[0].verdict, Verdict::pass);
}

TEST(Control, ThatDidNotEndLeavesTheLaneUndecided) {
  Outcome exact(4, 3, {Lane::exact});
  std::vector<RunResult> results = {exact.judge()};
  RunResult absent;
  absent.file = "made.json";
  absent.control_of = "random_data";
  apply_control(absent, &results);
  EXPECT_EQ(results[0].lanes[0].verdict, LaneVerdict::inconclusive);
  EXPECT_EQ(results[0].lanes[0].control, ControlVerdict::not_run);
}

TEST(Overall, AnyUnmetFailsThenAnyUndecided) {
  RunResult met, unmet, undecided;
  met.met = true;
  unmet.met = false;
  EXPECT_EQ(overall_verdict({met, undecided, unmet}), Verdict::fail);
  EXPECT_EQ(overall_verdict({met, undecided}), Verdict::inconclusive);
  EXPECT_EQ(overall_verdict({met}), Verdict::pass);
  EXPECT_EQ(overall_verdict({}), Verdict::inconclusive);
}

TEST(Words, LabelAndAgainCommand) {
  const AxisValues axes = {{"/world_size", "3"},
                           {"/reducer/kind", "\"bucketed\""},
                           {"/optimizer", R"({"kind":"sgd","lr":0.1})"}};
  EXPECT_EQ(label_of(axes), "world_size=3 reducer=bucketed optimizer=sgd,lr=0.1");
  EXPECT_EQ(again_command("a b.json", {"/steps=2", "/world_size=3"}, axes, 7),
            "lockstep verify 'a b.json' --set /steps=2 --set /world_size=3 --set "
            "/reducer/kind=bucketed --set '/optimizer={\"kind\":\"sgd\",\"lr\":0.1}' --seed 7");
  EXPECT_EQ(again_command("f", {}, {{"/name", "\"4\""}}, 1),
            "lockstep verify f --set '/name=\"4\"' --seed 1");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
}

TEST(Json, WritesWhatIsNotFiniteAsText) {
  Outcome outcome = wrong();
  MismatchEvidence e = gradient_evidence(Lane::replay, 1);
  e.run_value = std::numeric_limits<double>::quiet_NaN();
  e.golden_value = -std::numeric_limits<double>::infinity();
  outcome.run.evidence.assign(4, "");
  outcome.mismatch(0, Lane::replay, e);
  const auto json = as_json(outcome.judge());
  EXPECT_EQ(json["first_divergence"]["run_value"], "NaN");
  EXPECT_EQ(json["first_divergence"]["golden_value"], "-Infinity");
  EXPECT_EQ(json["failure"], nullptr);
  EXPECT_EQ(json["lanes"]["replay"]["verdict"], "fail");
}

}  // namespace

}  // namespace lockstep
