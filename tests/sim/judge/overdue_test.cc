#include "sim/judge/overdue.h"

#include <gmock/gmock.h>

#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kOneMs = 1'000'000;

// Rank 0 has been in a collective of step 2, which has 100 ms, for `waited_ms` when the run fails.
class OverdueTest : public ::testing::Test {
 protected:
  OverdueTest() {
    outcome_.run.plan.scenario.timeouts.collective_ms = 100;
    outcome_.run.plan.scenario.timeouts.construction_ms = 5'000;
    for (size_t rank = 0; rank < 2; ++rank) outcome_.stop(rank, 2);
    Event arrival = Outcome::event(EventKind::arrival, 2, 0, pack_collective(0, 6, 216));
    arrival.sequence = 99;
    arrival.time_ns = 1'000 * kOneMs;
    auto& events = outcome_.run.ranks[0].events;
    std::erase_if(events, [&](const Event& event) {
      return event.kind == static_cast<uint16_t>(EventKind::arrival) && event.step >= 2;
    });
    events.push_back(arrival);
    auto& end = outcome_.run.ends[0];
    end.by_launcher = true;
    end.state = ProcessState{};
    end.state->state = 'S';
  }

  std::string timeline_after(int64_t waited_ms) {
    outcome_.run.failed_ns = (1'000 + waited_ms) * kOneMs;
    result_ = RunResult();
    decide_timeline(outcome_.run, views_of(outcome_.run), &result_);
    return result_.checks.back().second;
  }

  Outcome outcome_{2};
  RunResult result_;
};

TEST_F(OverdueTest, TwiceItsTimeAndHalfASecondAreForgiven) {
  EXPECT_EQ(timeline_after(650), "pass");
  EXPECT_EQ(timeline_after(750), "fail");
  EXPECT_THAT(result_.check_reasons.back(),
              HasSubstr("timeline: rank 0 was in collective 99 (bucket 0"));
  EXPECT_THAT(result_.check_reasons.back(),
              HasSubstr("for 750 ms, which has a time-out of 100 ms"));
}

TEST_F(OverdueTest, WhatWaitsForACoreMayExplainIsUndecided) {
  outcome_.run.core_wait_ns = 100 * kOneMs;
  EXPECT_EQ(timeline_after(650), "pass");
  EXPECT_EQ(timeline_after(750), "inconclusive");
  EXPECT_THAT(result_.check_reasons.back(), HasSubstr("timeline: inconclusive: busy machine: "));
  EXPECT_EQ(timeline_after(850), "fail");
}

TEST_F(OverdueTest, AnExpectationOfAnUndecidedTimelineIsNeitherMetNorUnmet) {
  Expectation& expect = outcome_.run.plan.scenario.expect[0];
  expect = {};
  expect.verdict = "fail";
  expect.checks = {{"timeline", "fail"}};
  outcome_.run.failed_ns = 1'750 * kOneMs;
  EXPECT_EQ(outcome_.judge().met, true);
  outcome_.run.core_wait_ns = 100 * kOneMs;
  EXPECT_EQ(outcome_.judge().met, std::nullopt);
  EXPECT_EQ(outcome_.judge().undecided, Undecided::busy_machine);
  expect.outcome = "completed";
  EXPECT_EQ(outcome_.judge().undecided, Undecided::inconclusive) << "that is no matter of time";
  expect.outcome.reset();
  expect.checks.clear();
  EXPECT_EQ(outcome_.judge().undecided, Undecided::inconclusive) << "the check was not asked for";
}

TEST_F(OverdueTest, WhoIsStoppedCannotKeepATime) {
  outcome_.run.ends[0].state->state = 'T';
  EXPECT_EQ(timeline_after(5'000), "pass");
}

TEST_F(OverdueTest, WhoGaveUpKeptIt) {
  Event error = Outcome::event(EventKind::error, 2, 0, 0);
  error.time_ns = 1'100 * kOneMs;
  outcome_.run.ranks[0].events.push_back(error);
  EXPECT_EQ(timeline_after(5'000), "pass");
}

TEST_F(OverdueTest, IsNotRunWhereNothingFailedOrRanksAreThreads) {
  outcome_.run.plan.threads = true;
  EXPECT_EQ(timeline_after(5'000), "not_run");
  outcome_.run.plan.threads = false;
  outcome_.run.failed_ns = 0;
  RunResult result;
  decide_timeline(outcome_.run, views_of(outcome_.run), &result);
  EXPECT_EQ(result.checks.back().second, "not_run");
  EXPECT_THAT(result.check_reasons, IsEmpty());
}

}  // namespace
}  // namespace lockstep
