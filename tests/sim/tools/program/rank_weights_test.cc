#include "sim/tools/program/rank_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lockstep {
namespace {

std::vector<DrillRank> ranks_of(size_t world, size_t parameters) {
  std::mt19937 random(7);
  std::normal_distribution<double> draw;
  std::vector<DrillRank> ranks(world);
  for (DrillRank& rank : ranks)
    for (size_t i = 0; i < parameters; ++i) {
      std::vector<double> sketch(5);
      for (double& value : sketch) value = draw(random);
      rank.parameters.push_back({std::to_string(i), std::nullopt, sketch});
    }
  return ranks;
}

DrillRank mean_of(const std::vector<DrillRank>& ranks, const std::vector<double>& weights) {
  DrillRank one = ranks[0];
  for (size_t i = 0; i < one.parameters.size(); ++i)
    for (size_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (size_t rank = 0; rank < ranks.size(); ++rank)
        sum += weights[rank] * (*ranks[rank].parameters[i].gradient)[j];
      (*one.parameters[i].gradient)[j] = sum;
    }
  return one;
}

TEST(RankWeights, OfAMeanOfMeansAreFound) {
  for (const std::vector<double>& due : {std::vector<double>{0.4, 0.6},
                                         {0.2, 0.5, 0.3},
                                         {0.1, 0.1, 0.1, 0.4, 0.1, 0.1, 0.1},
                                         {0.7, 0.9, 0.2}}) {
    const auto ranks = ranks_of(due.size(), 6);
    const auto found = rank_weights(ranks, mean_of(ranks, due));
    ASSERT_TRUE(found);
    for (size_t i = 0; i < due.size(); ++i) EXPECT_NEAR((*found)[i], due[i], 1e-9);
  }
}

TEST(RankWeights, WhatIsNoWeightedMeanHasNone) {
  const auto ranks = ranks_of(3, 4);
  EXPECT_FALSE(rank_weights(ranks, mean_of(ranks, {1.0 / 3, 1.0 / 3, 1.0 / 3})));
  EXPECT_FALSE(rank_weights(ranks, mean_of(ranks, {0.5, 0.5, 0.5}))) << "a factor";
  EXPECT_FALSE(rank_weights(ranks, mean_of(ranks, {1.5, -0.4, -0.1})));
  DrillRank other = mean_of(ranks, {0.2, 0.5, 0.3});
  (*other.parameters[2].gradient)[1] += 0.01;
  EXPECT_FALSE(rank_weights(ranks, other));
  EXPECT_FALSE(rank_weights(ranks_of(3, 1), mean_of(ranks_of(3, 1), {0.2, 0.5, 0.3})))
      << "too little to tell";
  std::vector<DrillRank> alike = {ranks[0], ranks[0], ranks[1]};
  EXPECT_FALSE(rank_weights(alike, mean_of(alike, {0.2, 0.5, 0.3})));
}

// What an optimizer is given: the mean of the ranks' gradients, each by its factor.
ProgramStep given(const std::vector<DrillRank>& ranks, std::vector<double> factors) {
  for (double& factor : factors) factor /= static_cast<double>(ranks.size());
  ProgramStep step;
  for (const DrillParameter& parameter : mean_of(ranks, factors).parameters) {
    step.names.push_back(parameter.name);
    step.grads.push_back(parameter.gradient);
  }
  return step;
}

// Ranks whose gradients have these norms.
std::vector<DrillRank> of_norms(const std::vector<double>& norms) {
  auto ranks = ranks_of(norms.size(), 6);
  for (size_t rank = 0; rank < norms.size(); ++rank)
    for (DrillParameter& parameter : ranks[rank].parameters)
      (*parameter.gradient)[4] = norms[rank] / std::sqrt(6.0);
  return ranks;
}

TEST(LimitedNorms, OfEachRankByItselfAreFound) {
  const auto ranks = of_norms({1.0, 2.0, 4.0});
  auto found = limited_norms(ranks, given(ranks, {0.8, 0.4, 0.2}));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->limit, 0.8, 1e-9);
  EXPECT_NEAR(found->factors[2], 0.2, 1e-9);
  found = limited_norms(ranks, given(ranks, {1, 0.75, 0.375}));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->limit, 1.5, 1e-9);
}

TEST(LimitedNorms, AreNotThoseOfOtherFactors) {
  const auto ranks = of_norms({1.0, 2.0, 4.0});
  EXPECT_FALSE(limited_norms(ranks, given(ranks, {1, 1, 1}))) << "a mean";
  EXPECT_FALSE(limited_norms(ranks, given(ranks, {0.5, 0.5, 0.5}))) << "alike";
  EXPECT_FALSE(limited_norms(ranks, given(ranks, {0.8, 0.4, 0.3}))) << "no one limit";
  EXPECT_FALSE(limited_norms(ranks, given(ranks, {0.5, 1, 0.125}))) << "rank 1 is beyond it";
  EXPECT_FALSE(limited_norms(ranks, given(ranks, {2, 1, 0.5}))) << "larger than it was";
}

// What the optimizer is given where each rank limits the norm of each of its gradients.
ProgramStep limited_step(const std::vector<DrillRank>& ranks, double limit, double divisor) {
  ProgramStep step;
  for (const DrillParameter& parameter : ranks[0].parameters) {
    std::vector<double> sum(5, 0.0);
    for (const DrillRank& rank : ranks) {
      const Sketch& own = parameter_of(rank, parameter.name)->gradient;
      const double factor = std::min(1.0, limit / own->back());
      for (size_t k = 0; k < 4; ++k) sum[k] += factor * (*own)[k] / divisor;
    }
    sum[4] = std::sqrt((sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2] + sum[3] * sum[3]) / 4);
    step.names.push_back(parameter.name);
    step.grads.emplace_back(sum);
  }
  return step;
}

TEST(RankWeights, ALimitOfEachParametersGradientIsFound) {
  auto ranks = ranks_of(3, 4);
  for (DrillRank& rank : ranks)
    for (size_t i = 0; i < rank.parameters.size(); ++i)
      rank.parameters[i].gradient->back() = 1.0 + 0.2 * static_cast<double>(i);
  ranks[1].parameters[0].gradient->back() = 0.3;
  for (const double limit : {0.25, 0.5, 1.1})
    for (const double divisor : {1.0, 3.0}) {
      const auto found = limit_of_each_parameter(ranks, limited_step(ranks, limit, divisor));
      ASSERT_TRUE(found) << limit << " " << divisor;
      EXPECT_NEAR(*found, limit, 1e-9);
    }
  EXPECT_FALSE(limit_of_each_parameter(ranks, limited_step(ranks, 2, 3))) << "none is beyond it";
  ProgramStep other = limited_step(ranks, 0.5, 3);
  (*other.grads[2])[1] += 0.01;
  EXPECT_FALSE(limit_of_each_parameter(ranks, other));
}

}  // namespace
}  // namespace lockstep
