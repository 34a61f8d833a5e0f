#include "sim/campaign/clean_tally.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

RunResult run_with(const std::string& verdict, double statistic) {
  RunResult run;
  run.name = "clean-1";
  run.verdict = verdict;
  run.outcome = "completed";
  LaneResult replay, rounding;
  replay.lane = "replay";
  replay.verdict = verdict;
  replay.reason = "rank 1 differs";
  rounding.lane = "rounding";
  rounding.verdict = "pass";
  rounding.statistic = statistic;
  run.lanes = {replay, rounding};
  return run;
}

TEST(CleanTally, AFailIsAFalseAlarmAndAnInconclusiveRunIsNot) {
  RunResult undecided = run_with("inconclusive", 1);
  undecided.outcome = "failed";
  const CleanTally counted = tally({clean_run_of(run_with("pass", 2)),
                                    clean_run_of(run_with("fail", 0.5)), clean_run_of(undecided)});
  EXPECT_EQ(counted.runs, 3);
  EXPECT_EQ(counted.passed, 1);
  EXPECT_EQ(counted.accused, 1);
  EXPECT_EQ(counted.undecided, 1);
  EXPECT_EQ(counted.failed, 1);
  EXPECT_EQ(counted.statistics, (std::vector<double>{0.5, 1, 2}));
  ASSERT_EQ(counted.lanes.size(), 5U);
  EXPECT_EQ(counted.lanes[1].lane, "replay");
  EXPECT_EQ(counted.lanes[1].fail, 1);
  EXPECT_EQ(counted.lanes[3].pass, 3);
  const auto json = as_json(counted);
  EXPECT_EQ(json["rounding_statistic"]["median"], 1);
  EXPECT_EQ(json["rounding_statistic"]["largest"], 2);
  EXPECT_EQ(json["lanes"]["replay"]["undecided"], 1);
}

TEST(CleanTally, SaysWhyARunDidNotPass) {
  EXPECT_EQ(clean_run_of(run_with("fail", 1)).why, "lane replay: fail: rank 1 differs");
  EXPECT_EQ(clean_run_of(run_with("pass", 1)).why, "");
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

}  // namespace
}  // namespace lockstep
