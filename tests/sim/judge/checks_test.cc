#include <gmock/gmock.h>

#include <bit>
#include <limits>

#include "golden/state.h"
#include "sim/judge/checks.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// Steps 1 and 3 of two epochs of two steps, with losses 1 + rank.
Outcome with_losses(const std::string& of, int64_t batch_size = 8) {
  Outcome outcome(4, 4);
  Scenario& s = outcome.run.plan.scenario;
  s.batch_size = batch_size;
  s.data.options.set("samples", 2 * batch_size);
  s.split.kind = "contiguous";
  s.loss.options.set("reduction", std::string("mean"));
  s.loss.options.set("report_every", int64_t{2});
  s.loss.options.set("report_of", of);
  s.loss.options.set("published", std::string("/published.json"));
  for (size_t rank = 0; rank < 4; ++rank)
    for (const int64_t step : {1, 3})
      // Before the double run, whose losses do not count.
      outcome.run.ranks[rank].events.insert(
          outcome.run.ranks[rank].events.begin(),
          Outcome::event(EventKind::loss, step, -1,
                         std::bit_cast<uint64_t>(1.0 + static_cast<double>(rank))));
  return outcome;
}

std::optional<CheckVerdict> check_of(const RunResult& result) {
  for (const auto& [check, verdict] : result.checks)
    if (check == "losses") return verdict;
  return std::nullopt;
}

TEST(Losses, OfTheBatchAndOfRank0) {
  const RunResult result = with_losses("all_ranks").judge();
  EXPECT_EQ(result.verdict, Verdict::pass);
  EXPECT_EQ(check_of(result), CheckVerdict::pass);
  ASSERT_EQ(result.losses.size(), 2U);
  EXPECT_EQ(result.losses[1].step, 1);
  EXPECT_EQ(result.losses[0].epoch, 2);
  EXPECT_EQ(result.losses[0].all_ranks, 2.5);
  EXPECT_EQ(result.losses[0].rank_0, 1);
  EXPECT_EQ(result.published_losses, "");  // made-up data
}

TEST(Losses, ShardsCountByTheirSamples) {
  Outcome outcome = with_losses("all_ranks", 5);  // 2, 1, 1, 1
  outcome.run.plan.scenario.data.options.set("path", std::string("/files"));
  const RunResult result = outcome.judge();
  EXPECT_DOUBLE_EQ(result.losses[0].all_ranks, (2 * 1 + 2 + 3 + 4) / 5.0);
  EXPECT_EQ(result.published_losses, "/published.json");
}

TEST(Losses, WhatRank0SeesIsNotTheBatchs) {
  const RunResult result = with_losses("rank_0").judge();
  EXPECT_EQ(result.verdict, Verdict::fail);
  EXPECT_EQ(check_of(result), CheckVerdict::fail);
  EXPECT_THAT(result.check_reasons.back(),
              HasSubstr("1 is the loss of rank 0's own 2 samples, the batch's 8 have 2.5"));
  EXPECT_FALSE(result.first_divergence);
}

TEST(Losses, AStepThatARankDidNotRecordIsLeftOut) {
  Outcome outcome = with_losses("rank_0");
  outcome.remove_kind(2, EventKind::loss, -1);
  const RunResult result = outcome.judge();
  EXPECT_TRUE(result.losses.empty());
  EXPECT_EQ(check_of(result), CheckVerdict::not_run);
  EXPECT_EQ(Outcome().judge().losses.size(), 0U);
  EXPECT_EQ(check_of(Outcome().judge()), std::nullopt);
}

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// Three steps of four ranks, whose losses are 1 to 4 and those of one device 2.5.
class CommonChecksTest : public ::testing::Test {
 protected:
  CommonChecksTest() {
    Scenario& s = outcome_.run.plan.scenario;
    s.common_checks = true;
    s.batch_size = 8;
    s.data.options.set("samples", int64_t{24});
    s.split.kind = "contiguous";
    s.loss.options.set("reduction", std::string("mean"));
    for (int64_t step = 3; step >= 1; --step) {
      for (size_t rank = 0; rank < 4; ++rank)
        front(rank, EventKind::loss, step, 1.0 + static_cast<double>(rank));
      front(0, EventKind::golden_loss, step, 2.5);
      front(0, EventKind::norm_ratio, step, 1.01);
    }
    outcome_.run.ranks[0].events.insert(outcome_.run.ranks[0].events.begin(),
                                        Outcome::event(EventKind::close, 3, -1, 1));
  }

  // Before the double run.
  void front(size_t rank, EventKind kind, int64_t step, double value) {
    auto& events = outcome_.run.ranks[rank].events;
    events.insert(events.begin(), Outcome::event(kind, step, -1, std::bit_cast<uint64_t>(value)));
  }
  void replace(EventKind kind, int64_t step, double value) {
    outcome_.change(0, kind, -1, [&](Event& event) {
      if (event.step == step) event.value = std::bit_cast<uint64_t>(value);
    });
  }
  // Of loss, hash, closeness and norm.
  std::vector<std::string> words() const {
    std::vector<std::string> words;
    for (const auto& [name, word] : outcome_.judge().common_checks)
      words.emplace_back(to_word(word));
    return words;
  }

  Outcome outcome_;
};

using Words = std::vector<std::string>;

TEST_F(CommonChecksTest, FindNothingInACleanRun) {
  EXPECT_EQ(words(), (Words{"missed", "missed", "missed", "missed"}));
  EXPECT_EQ(outcome_.judge().verdict, Verdict::pass);
  outcome_.run.plan.scenario.common_checks = false;
  EXPECT_EQ(words(), Words());
}

TEST_F(CommonChecksTest, EachHasItsTolerance) {
  replace(EventKind::golden_loss, 2, 2.5 / 1.04);
  replace(EventKind::norm_ratio, 2, 0.93);
  EXPECT_EQ(words(), (Words{"missed", "missed", "missed", "missed"}));
  replace(EventKind::golden_loss, 2, 2.5 / 1.06);
  EXPECT_EQ(words(), (Words{"found", "missed", "missed", "missed"}));
  replace(EventKind::norm_ratio, 2, 0.91);
  EXPECT_EQ(words(), (Words{"found", "missed", "missed", "found"}));
  outcome_.change(0, EventKind::close, -1, [](Event& event) { event.value = 0; });
  EXPECT_EQ(words(), (Words{"found", "missed", "found", "found"}));
  EXPECT_EQ(outcome_.judge().verdict, Verdict::pass);  // they have no weight in it
}

TEST_F(CommonChecksTest, WhatIsNotANumberIsOff) {
  replace(EventKind::golden_loss, 3, kNotANumber);
  replace(EventKind::norm_ratio, 1, kNotANumber);
  EXPECT_EQ(words(), (Words{"found", "missed", "missed", "found"}));
}

TEST_F(CommonChecksTest, WeightsThatPartAreSeenByTheirHash) {
  outcome_.part(2, static_cast<int32_t>(StateKind::gradient), 2);
  EXPECT_EQ(words()[1], "missed");  // of gradients it knows nothing
  outcome_.part(2, static_cast<int32_t>(StateKind::parameter), 3);
  EXPECT_EQ(words()[1], "found");
}

TEST_F(CommonChecksTest, WhatWasNotRecordedIsNotRun) {
  for (const EventKind kind : {EventKind::golden_loss, EventKind::norm_ratio, EventKind::close})
    outcome_.remove_kind(0, kind, -1);
  EXPECT_EQ(words(), (Words{"not_run", "missed", "not_run", "not_run"}));
}

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

  CheckVerdict timeline_after(int64_t waited_ms) {
    outcome_.run.failed_ns = (1'000 + waited_ms) * kOneMs;
    result_ = RunResult();
    decide_timeline(outcome_.run, views_of(outcome_.run), &result_);
    return result_.checks.back().second;
  }

  Outcome outcome_{2};
  RunResult result_;
};

TEST_F(OverdueTest, TwiceItsTimeAndHalfASecondAreForgiven) {
  EXPECT_EQ(timeline_after(650), CheckVerdict::pass);
  EXPECT_EQ(timeline_after(750), CheckVerdict::fail);
  EXPECT_THAT(result_.check_reasons.back(),
              HasSubstr("timeline: rank 0 was in collective 99 (bucket 0"));
  EXPECT_THAT(result_.check_reasons.back(),
              HasSubstr("for 750 ms, which has a time-out of 100 ms"));
}

TEST_F(OverdueTest, WhatWaitsForACoreMayExplainIsUndecided) {
  outcome_.run.core_wait_ns = 100 * kOneMs;
  EXPECT_EQ(timeline_after(650), CheckVerdict::pass);
  EXPECT_EQ(timeline_after(750), CheckVerdict::inconclusive);
  EXPECT_THAT(result_.check_reasons.back(), HasSubstr("timeline: inconclusive: busy machine: "));
  EXPECT_EQ(timeline_after(850), CheckVerdict::fail);
}

TEST_F(OverdueTest, AnExpectationOfAnUndecidedTimelineIsNeitherMetNorUnmet) {
  Expectation& expect = outcome_.run.plan.scenario.expect[0];
  expect = {};
  expect.verdict = Verdict::fail;
  expect.checks = {{"timeline", CheckVerdict::fail}};
  outcome_.run.failed_ns = 1'750 * kOneMs;
  EXPECT_EQ(outcome_.judge().met, true);
  outcome_.run.core_wait_ns = 100 * kOneMs;
  EXPECT_EQ(outcome_.judge().met, std::nullopt);
  EXPECT_EQ(outcome_.judge().undecided, Undecided::busy_machine);
  expect.outcome = RunEnding::completed;
  EXPECT_EQ(outcome_.judge().undecided, Undecided::inconclusive) << "that is no matter of time";
  expect.outcome.reset();
  expect.checks.clear();
  EXPECT_EQ(outcome_.judge().undecided, Undecided::inconclusive) << "the check was not asked for";
}

TEST_F(OverdueTest, WhoIsStoppedCannotKeepATime) {
  outcome_.run.ends[0].state->state = 'T';
  EXPECT_EQ(timeline_after(5'000), CheckVerdict::pass);
}

TEST_F(OverdueTest, WhoGaveUpKeptIt) {
  Event error = Outcome::event(EventKind::error, 2, 0, 0);
  error.time_ns = 1'100 * kOneMs;
  outcome_.run.ranks[0].events.push_back(error);
  EXPECT_EQ(timeline_after(5'000), CheckVerdict::pass);
}

TEST_F(OverdueTest, WhatBrokeWhenTheRunHadFailedIsNoSignOfATimeKept) {
  EXPECT_EQ(timeline_after(5'000), CheckVerdict::fail);
  Event error = Outcome::event(EventKind::error, 2, 0, 0);
  error.time_ns = outcome_.run.failed_ns + kOneMs;
  outcome_.run.ranks[0].events.push_back(error);
  outcome_.run.ends[0].by_launcher = false;
  outcome_.run.ends[0].time_ns = outcome_.run.failed_ns + 2 * kOneMs;
  EXPECT_EQ(timeline_after(5'000), CheckVerdict::fail);
}

TEST_F(OverdueTest, IsNotRunWhereNothingFailedOrRanksAreThreads) {
  outcome_.run.plan.threads = true;
  EXPECT_EQ(timeline_after(5'000), CheckVerdict::not_run);
  outcome_.run.plan.threads = false;
  outcome_.run.failed_ns = 0;
  RunResult result;
  decide_timeline(outcome_.run, views_of(outcome_.run), &result);
  EXPECT_EQ(result.checks.back().second, CheckVerdict::not_run);
  EXPECT_THAT(result.check_reasons, IsEmpty());
}

}  // namespace

}  // namespace lockstep
