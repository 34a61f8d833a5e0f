#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "sim/tools/explore/report.h"
#include "tests/sim/report/schema_errors.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

ExploreDocument sample_exploration(bool expects_finding, bool finds) {
  ExploreDocument document;
  document.spec.schedules = 100;
  document.machine = this_machine();
  ExploredScenario one;
  one.name = "toy";
  one.file = "toy.json";
  one.reducer = "bucketed";
  one.again = "lockstep explore toy.json";
  one.expects_finding = expects_finding;
  one.result.explored = finds ? 7 : 100;
  one.result.duration_ms = 200;
  one.result.reference = "replay";
  if (finds) {
    ExploreFinding finding;
    finding.failure = {"lost_update", 1, 2, "its buffer was written"};
    finding.schedule = 7;
    finding.seed = 77;
    finding.smallest = {.steps = 1,
                        .world_size = 2,
                        .parameters = {"2.bias"},
                        .preemptions = 1,
                        .decisions = 1,
                        .failure = {"lost_update", 0, 1, "its buffer was written"},
                        .acts = {{0, 0, "makes its reducer"}, {1, 1, "begins its forward"}}};
    one.result.findings.push_back(finding);
  }
  document.scenarios.push_back(one);
  conclude(&document);
  return document;
}

bool fits_explore_schema(const ExploreDocument& document) {
  return schema_errors(explore_schema_text(), json::parse(as_json(document).dump())).empty();
}

TEST(ExploreDocument, FindingsThatAreNotExpectedFailAndThoseThatAreDoNot) {
  EXPECT_EQ(sample_exploration(false, false).exit_code, 0);
  EXPECT_EQ(sample_exploration(false, true).exit_code, 1);
  EXPECT_EQ(sample_exploration(true, true).exit_code, 0);
  EXPECT_EQ(sample_exploration(true, false).exit_code, 1);
  EXPECT_THAT(explore_answer(sample_exploration(true, true)),
              EndsWith("pass: 7 schedules of 1 scenario, 1 finding (1 expected)\n"));
  EXPECT_THAT(explore_text(sample_exploration(true, false), Style(false)),
              HasSubstr("a finding is expected, and there is none"));
}

TEST(ExploreDocument, AFindingIsToldWithItsSmallestScheduleAndHowToSeeItAgain) {
  const ExploreDocument document = sample_exploration(false, true);
  const std::string text = explore_text(document, Style(false));
  EXPECT_THAT(text, HasSubstr("fail  toy  lost_update in schedule 7, seed 77\n"));
  EXPECT_THAT(text, HasSubstr("where     rank 1, step 2: its buffer was written\n"));
  EXPECT_THAT(text, HasSubstr("1 step, 2 ranks, 1 parameter (2.bias), 1 preemption\n"));
  EXPECT_THAT(text, HasSubstr("1 act of construction left out"));
  EXPECT_THAT(text, Not(HasSubstr("makes its reducer")));
  EXPECT_THAT(text, HasSubstr("begins its forward"));
  EXPECT_THAT(text, HasSubstr("again     lockstep explore toy.json --replay 77\n"));
  EXPECT_TRUE(fits_explore_schema(document));
}

TEST(ExploreDocument, WhatIsNotSureIsInconclusive) {
  ExploreDocument document = sample_exploration(false, false);
  document.scenarios[0].result.explored = 99;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 3);
  document.scenarios[0].result.exhausted = true;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 0);
  document.scenarios[0].result.broken = "no worker";
  conclude(&document);
  EXPECT_EQ(document.exit_code, 3);
  EXPECT_THAT(explore_text(document, Style(false)), HasSubstr("broke down: no worker"));
  EXPECT_TRUE(fits_explore_schema(document));
  document.scenarios[0].result.signal = 2;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 130);
}

TEST(ExploreDocument, AReplayCountsWhereItIsTheSameEachTime) {
  ExploreDocument document = sample_exploration(false, false);
  document.spec.replay = 5;
  document.scenarios[0].result.explored = kReplays;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 3);
  document.scenarios[0].result.reproduced = kReplays;
  conclude(&document);
  EXPECT_EQ(document.exit_code, 0);
}

}  // namespace

}  // namespace lockstep
