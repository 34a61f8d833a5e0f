#include "sim/judge/losses.h"

#include <gmock/gmock.h>

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

std::string check_of(const RunResult& result) {
  for (const auto& [check, verdict] : result.checks)
    if (check == "losses") return verdict;
  return "";
}

TEST(Losses, OfTheBatchAndOfRank0) {
  const RunResult result = with_losses("all_ranks").judge();
  EXPECT_EQ(result.verdict, "pass");
  EXPECT_EQ(check_of(result), "pass");
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
  EXPECT_EQ(result.verdict, "fail");
  EXPECT_EQ(check_of(result), "fail");
  EXPECT_THAT(result.check_reasons.back(),
              HasSubstr("1 is the loss of rank 0's own 2 samples, the batch's 8 have 2.5"));
  EXPECT_FALSE(result.first_divergence);
}

TEST(Losses, AStepThatARankDidNotRecordIsLeftOut) {
  Outcome outcome = with_losses("rank_0");
  outcome.remove_kind(2, EventKind::loss, -1);
  const RunResult result = outcome.judge();
  EXPECT_TRUE(result.losses.empty());
  EXPECT_EQ(check_of(result), "not_run");
  EXPECT_EQ(Outcome().judge().losses.size(), 0U);
  EXPECT_EQ(check_of(Outcome().judge()), "");
}

}  // namespace
}  // namespace lockstep
