#include <gtest/gtest.h>

#include "sim/judge/expectation.h"

namespace lockstep {
namespace {

Expectation of_wrong_divisor() {
  Expectation expect;
  expect.verdict = Verdict::fail;
  expect.cause = "wrong_divisor";
  expect.step = 2;
  expect.tensor = "fc1.weight";
  expect.lanes = {{Lane::replica, LaneVerdict::pass}, {Lane::replay, LaneVerdict::fail}};
  return expect;
}

RunResult found() {
  RunResult result;
  result.verdict = Verdict::fail;
  result.met = true;
  result.outcome = RunEnding::completed;
  result.lanes = {{Lane::replica, LaneVerdict::pass, ControlVerdict::detected, "", 9, {}, {}},
                  {Lane::replay, LaneVerdict::fail, ControlVerdict::detected, "", 9, {}, {}}};
  Divergence divergence;
  divergence.step = 2;
  divergence.tensor = "fc1.weight";
  divergence.cause = "wrong_divisor";
  result.first_divergence = divergence;
  return result;
}

TEST(Kill, TakesTheRightLanesCauseAndPlace) {
  const Kill kill = kill_of(of_wrong_divisor(), found());
  EXPECT_FALSE(kill.hidden);
  EXPECT_TRUE(kill.caught);
  EXPECT_EQ(kill.cause_right, true);
  EXPECT_EQ(kill.place_right, true);
  EXPECT_TRUE(kill.complete());
}

TEST(Kill, IsIncompleteWithAnotherCauseOrPlaceOrLane) {
  RunResult result = found();
  result.first_divergence->cause = "order_only";
  EXPECT_EQ(kill_of(of_wrong_divisor(), result).cause_right, false);
  EXPECT_FALSE(kill_of(of_wrong_divisor(), result).complete());
  result = found();
  result.first_divergence->step = 1;
  EXPECT_EQ(kill_of(of_wrong_divisor(), result).place_right, false);
  EXPECT_TRUE(kill_of(of_wrong_divisor(), result).caught);
  EXPECT_FALSE(kill_of(of_wrong_divisor(), result).complete());
  result = found();
  result.lanes[0].verdict = LaneVerdict::fail;  // too much was said
  EXPECT_FALSE(kill_of(of_wrong_divisor(), result).caught);
  result = found();
  result.met = std::nullopt;  // interrupted, say
  EXPECT_FALSE(kill_of(of_wrong_divisor(), result).caught);
}

TEST(Kill, SaysNothingOfWhatTheExpectationLeavesOpen) {
  Expectation expect;
  expect.outcome = RunEnding::failed;
  RunResult result;
  result.met = true;
  result.outcome = RunEnding::failed;
  const Kill kill = kill_of(expect, result);
  EXPECT_TRUE(kill.caught);
  EXPECT_EQ(kill.cause_right, std::nullopt);
  EXPECT_EQ(kill.place_right, std::nullopt);
  EXPECT_TRUE(kill.complete());
}

TEST(Kill, IsOfAHiddenDefectIfNothingIsExpected) {
  Expectation expect;
  expect.verdict = Verdict::pass;
  expect.lanes = {{Lane::replica, LaneVerdict::pass}};
  RunResult result = found();
  result.verdict = Verdict::pass;
  EXPECT_TRUE(kill_of(expect, result).hidden);
  expect.straggler = ExpectedStraggler{"slow", 1};
  EXPECT_FALSE(kill_of(expect, result).hidden);
}

}  // namespace

}  // namespace lockstep
