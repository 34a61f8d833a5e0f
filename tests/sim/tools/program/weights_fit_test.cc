#include "sim/tools/program/weights_fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/tools/program/drill_cause.h"

namespace lockstep {
namespace {

TEST(WeightsFit, SharesOfACountAreToldFromOthers) {
  EXPECT_TRUE(are_shares_of_a_count({0.375, 0.625}));
  EXPECT_TRUE(are_shares_of_a_count({12.0 / 47, 17.0 / 47, 18.0 / 47}));
  EXPECT_TRUE(are_shares_of_a_count({10'007.0 / 20'011, 10'004.0 / 20'011}));
  EXPECT_FALSE(are_shares_of_a_count({0.35179434, 0.30712811, 0.34107755}));
  EXPECT_FALSE(are_shares_of_a_count({std::sqrt(0.2), 1 - std::sqrt(0.2)}));
}

TEST(WeightsFit, AColumnOfZerosHasNoWeight) {
  std::vector<WeightedRow> rows;
  for (const double x : {1.0, 2.0, -1.0, 4.0, 0.5, 3.0, -2.0, 1.5})
    rows.push_back({x, 0, x * x, 0.25 * x + 0.75 * x * x});
  const std::vector<double> weights = fitted_weights(rows, 3);
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_NEAR(weights[0], 0.25, 1e-12);
  EXPECT_EQ(weights[1], 0);
  EXPECT_NEAR(weights[2], 0.75, 1e-12);
}

TEST(WeightsFit, AFunctionOfAMeanIsNoMeanOfMeans) {
  ProgramFinding wrong;
  wrong.cause = ProgramCause::unknown;
  DrillFinding drilled;
  drilled.weights = {0.25, 0.75};
  EXPECT_EQ(with_cause(drilled, wrong).cause, ProgramCause::mean_of_means);
  drilled.weights = {std::sqrt(0.2), 1 - std::sqrt(0.2)};
  EXPECT_EQ(with_cause(drilled, wrong).cause, ProgramCause::function_of_mean);
  drilled.weights = {std::sqrt(0.2), std::sqrt(0.3)};  // as of a root
  EXPECT_EQ(with_cause(drilled, wrong).cause, ProgramCause::function_of_mean);
  drilled.weights = {0.5, 0.25};  // as where rank 1 doubles its loss
  EXPECT_EQ(with_cause(drilled, wrong).cause, ProgramCause::unknown);
}

}  // namespace
}  // namespace lockstep
