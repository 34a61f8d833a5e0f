#include <gmock/gmock.h>

#include <random>

#include "sim/judge/factor_cause.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Optional;
using Values = std::vector<double>;

Values drawn(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Values values;
  for (int i = 0; i < 48; ++i) values.push_back(normal(random));
  return values;
}

Values mixed(const std::vector<Values>& parts, const Values& weights) {
  Values sum(48, 0);
  for (size_t p = 0; p < parts.size(); ++p)
    for (size_t i = 0; i < 48; ++i) sum[i] += weights[p] * parts[p][i];
  return sum;
}

TEST(Mixture, TheWeightsComeBack) {
  const std::vector<Values> parts = {drawn(1), drawn(2), drawn(3)};
  EXPECT_THAT(
      weights_of(mixed(parts, {0.5, 0, -2}), parts, 1e-9),
      Optional(ElementsAre(DoubleNear(0.5, 1e-12), DoubleNear(0, 1e-12), DoubleNear(-2, 1e-12))));
}

TEST(Mixture, PartsThatAreMuchAlikeAreToldApart) {
  Values alike = drawn(1);
  alike[5] += 0.01;
  const std::vector<Values> parts = {drawn(1), alike};
  EXPECT_THAT(weights_of(mixed(parts, {1, 3}), parts, 1e-9),
              Optional(ElementsAre(DoubleNear(1, 1e-6), DoubleNear(3, 1e-6))));
}

TEST(Mixture, NoneWhereSomethingElseIsInTheResult) {
  const std::vector<Values> parts = {drawn(1), drawn(2)};
  Values result = mixed(parts, {1, 1});
  result[7] += 1e-3;
  EXPECT_FALSE(weights_of(result, parts, 1e-7));
  EXPECT_TRUE(weights_of(result, parts, 1e-2));
}

TEST(Mixture, NoneWherePartsAreEqualOrMoreThanCanBeToldApart) {
  EXPECT_FALSE(weights_of(drawn(1), {drawn(1), drawn(1)}, 1));
  EXPECT_FALSE(weights_of(drawn(1), {Values(48, 0)}, 1));
  EXPECT_FALSE(weights_of({1, 2, 3}, {{1, 0, 0}}, 1));
  EXPECT_FALSE(weights_of(drawn(1), {}, 1));
}

}  // namespace

}  // namespace lockstep
