#include "sim/calibrate/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(Accuracy, OfOneRunWhichTheMachineIsFittedToNothingIsKnown) {
  EXPECT_FALSE(accuracy_of({{"a", 98, 100}}));
  EXPECT_FALSE(accuracy_of({}));
}

TEST(Accuracy, OfSeveralRunsIsThatOfAFurtherOne) {
  // Errors of 1 % each: 2.776 (4 degrees) x 0.01 x sqrt(1.25).
  const auto accuracy =
      accuracy_of({{"a", 101, 100}, {"a", 99, 100}, {"a", 101, 100}, {"b", 99, 100}});
  ASSERT_TRUE(accuracy);
  EXPECT_TRUE(accuracy->held_out);
  EXPECT_EQ(accuracy->runs, 4);
  EXPECT_NEAR(accuracy->step_error, 2.776 * 0.01 * std::sqrt(1.25), 1e-12);
}

TEST(Accuracy, BetweenCapsWhatAllAreOffByDoesNotCount) {
  // All are 10 % too slow; between caps of a group they agree to 1 %.
  const auto accuracy = accuracy_of(
      {{"2 ranks", 110, 100}, {"2 ranks", 111, 100}, {"3 ranks", 220, 200}, {"3 ranks", 222, 200}});
  ASSERT_TRUE(accuracy && accuracy->cap_error);
  EXPECT_GT(accuracy->step_error, 0.1);
  EXPECT_NEAR(*accuracy->cap_error, 4.303 * std::sqrt(2 * 4 * 0.005 * 0.005 / 2), 1e-12);
}

TEST(Accuracy, QuantilesFallToTheNormalOne) {
  EXPECT_DOUBLE_EQ(student_975(1), 12.706);
  EXPECT_DOUBLE_EQ(student_975(30), 2.042);
  EXPECT_NEAR(student_975(60), 2.000, 0.001);
  EXPECT_NEAR(student_975(100'000), 1.960, 0.001);
}

}  // namespace
}  // namespace lockstep
