#include "sim/tools/compare/addition_orders.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace lockstep {
namespace {

// Of sizes that round: no sum of three of them is exact.
template <class T>
std::vector<T> contributions(size_t ranks, uint32_t seed) {
  std::mt19937 draw(seed);
  std::normal_distribution<double> normal;
  std::vector<T> all(ranks);
  for (T& one : all) one = static_cast<T>(normal(draw) * std::exp(normal(draw)));
  return all;
}

template <class T>
T added_up(std::vector<T> terms, std::mt19937* draw) {
  while (terms.size() > 1) {  // any two of those that are left
    std::shuffle(terms.begin(), terms.end(), *draw);
    const T one = terms.back();
    terms.pop_back();
    terms.back() += one;
  }
  return terms[0];
}

template <class T>
class AdditionOrders : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AdditionOrders, Types);

TYPED_TEST(AdditionOrders, FindsEveryTreeUpToEightRanks) {
  std::mt19937 draw(1);
  for (size_t ranks = 2; ranks <= kEveryOrderRanks; ++ranks)
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const auto terms = contributions<TypeParam>(ranks, seed);
      EXPECT_NE(means_that_give(terms, added_up(terms, &draw), bit_of(MeanBy::sum)), 0U);
    }
}

TYPED_TEST(AdditionOrders, TellsHowAMeanWasDivided) {
  const auto world = TypeParam{3};
  int only = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto terms = contributions<TypeParam>(3, seed);
    const TypeParam after = (terms[1] + terms[2] + terms[0]) / world;
    const TypeParam before = terms[2] / world + terms[0] / world + terms[1] / world;
    EXPECT_TRUE(means_that_give(terms, after, kAnyMean) & bit_of(MeanBy::divided_after));
    EXPECT_TRUE(means_that_give(terms, before, kAnyMean) & bit_of(MeanBy::divided_before));
    EXPECT_EQ(means_that_give(terms, after, bit_of(MeanBy::sum)), 0U);
    only += (means_that_give(terms, before, kAnyMean) & bit_of(MeanBy::divided_after)) == 0;
  }
  EXPECT_GT(only, 20) << "two ways to divide would never be told apart";
}

TYPED_TEST(AdditionOrders, NoOrderExplainsAnotherContribution) {
  for (size_t ranks = 2; ranks <= kEveryOrderRanks; ++ranks)
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const auto terms = contributions<TypeParam>(ranks, seed);
      const auto sum = std::accumulate(terms.begin(), terms.end(), TypeParam{0});
      auto other = terms;
      other[seed % ranks] *= TypeParam{1.001};
      EXPECT_EQ(means_that_give(other, sum, kAnyMean), 0U) << ranks << " ranks, seed " << seed;
    }
}

TYPED_TEST(AdditionOrders, BeyondEightRanksRingsAndButterfliesAreTried) {
  std::mt19937 draw(1);
  const auto terms = contributions<TypeParam>(16, 3);
  TypeParam ring = terms[5];
  for (size_t i = 1; i < 16; ++i) ring += terms[(5 + 16 - i) % 16];
  EXPECT_NE(means_that_give(terms, ring, bit_of(MeanBy::sum)), 0U);
  auto halves = terms;
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) halves[i] += halves[i + half];
  EXPECT_NE(means_that_give(terms, halves[0], bit_of(MeanBy::sum)), 0U);
}

TYPED_TEST(AdditionOrders, AllNaNsAreAlikeAndZerosAreNot) {
  const auto nan = std::numeric_limits<TypeParam>::quiet_NaN();
  EXPECT_EQ(means_that_give<TypeParam>({1, nan}, -nan, kAnyMean), kAnyMean);
  EXPECT_EQ(means_that_give<TypeParam>({1, -1}, TypeParam{-0.0}, kAnyMean), 0U);
}

}  // namespace
}  // namespace lockstep
