#include "sim/cli/cap_advice.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

SimulatedLine line_of(int64_t ranks, double cap_mb, double step_ms) {
  SimulatedLine line;
  line.ranks = ranks;
  line.cap_mb = cap_mb;
  line.numbers.steps = 10;
  line.numbers.step_ms = step_ms;
  line.tail_mb = cap_mb / 2;
  return line;
}

const std::vector<SimulatedLine> kCurve = {line_of(3, 1, 104), line_of(3, 4, 100),
                                           line_of(3, 8, 100.4), line_of(3, 25, 103)};

CapAdvice only(std::vector<SimulatedLine> lines, std::optional<double> usual,
               const std::optional<Accuracy>& accuracy) {
  for (SimulatedLine& line : lines)
    if (accuracy) line.step_error = accuracy->step_error;
  const auto advice = advise(lines, usual, accuracy);
  EXPECT_EQ(advice.size(), 1u);
  return advice.front();
}

TEST(CapAdvice, RecommendsWhatIsFasterBeyondTheErrorBetweenCaps) {
  const CapAdvice advice = only(kCurve, 25, Accuracy{0.05, 0.01, 5, true});
  EXPECT_EQ(advice.cap_mb, 4);
  EXPECT_EQ(advice.alike_mb, std::vector<double>{8});
  EXPECT_EQ(advice.text,
            "at 3 ranks: bucket_cap_mb 4, 100.00 ms a step (95.00 .. 105.00), 3.0 % (2.0 .. 4.0) "
            "faster than 25; the tail bucket has 2.00 MB instead of 12.50; cannot tell 8 from it");
}

TEST(CapAdvice, KeepsTheUsualCapWhereTheErrorIsLarger) {
  const CapAdvice advice = only(kCurve, 25, Accuracy{0.05, 0.035, 5, true});
  EXPECT_FALSE(advice.cap_mb);
  EXPECT_EQ(advice.best_mb, 4);
  EXPECT_EQ(advice.text,
            "at 3 ranks: keep bucket_cap_mb 25, 103.00 ms a step (97.85 .. 108.15): cannot tell "
            "which is faster of 4, 8, 25, within 3.5 % of each other");
  // Without an error between caps both step times have their own.
  EXPECT_FALSE(only(kCurve, 25, Accuracy{0.02, std::nullopt, 1, false}).cap_mb);
  EXPECT_EQ(only(kCurve, 25, Accuracy{0.01, std::nullopt, 1, false}).cap_mb, 4);
}

// A step that may take five times as long does not take less than nothing.
TEST(CapAdvice, NoIntervalGoesBelowNothing) {
  std::vector<SimulatedLine> lines = {line_of(3, 1, 100), line_of(3, 25, 100)};
  for (SimulatedLine& line : lines) line.of_alternatives = {0.9, 5};
  EXPECT_THAT(only(lines, 25, Accuracy{4, 4, 1, false}).text,
              testing::HasSubstr("(90.00 .. 500.00)"));
  lines.pop_back();
  lines.push_back(line_of(3, 25, 100));
  for (SimulatedLine& line : lines) line.of_alternatives.clear();
  EXPECT_THAT(only(lines, 25, Accuracy{4, 4, 1, false}).text,
              testing::HasSubstr("(0.00 .. 500.00)"));
}

// What gives the fitted row by slower links, say, has the larger cap faster here.
TEST(CapAdvice, WhatAnAlternativeTurnsRoundIsNotRecommended) {
  std::vector<SimulatedLine> lines = {line_of(3, 1, 100), line_of(3, 25, 104)};
  const Accuracy accuracy{0.03, 0.01, 1, false};
  lines[0].of_alternatives = {1, 1.06};
  lines[1].of_alternatives = {1, 1.03};
  EXPECT_EQ(only(lines, 25, accuracy).cap_mb, 1);  // 2.9 % of 4 are in doubt
  lines[1].of_alternatives = {1, 1.01};
  EXPECT_FALSE(only(lines, 25, accuracy).cap_mb);
}

TEST(CapAdvice, WithoutAnErrorItSaysWhatItIsWorth) {
  const CapAdvice advice = only(kCurve, 25, std::nullopt);
  EXPECT_EQ(advice.cap_mb, 4);
  EXPECT_FALSE(advice.gain_error);
  EXPECT_EQ(advice.text,
            "at 3 ranks: bucket_cap_mb 4, 100.00 ms a step, 3.0 % faster than 25; the tail bucket "
            "has 2.00 MB instead of 12.50; cannot tell 8 from it");
}

TEST(CapAdvice, NothingThatIsFasterByNothingIsRecommended) {
  const auto lines = {line_of(6, 4, 99.9), line_of(6, 25, 100)};
  const CapAdvice advice = only(lines, 25, std::nullopt);
  EXPECT_FALSE(advice.cap_mb);
  EXPECT_EQ(advice.text,
            "at 6 ranks: keep bucket_cap_mb 25, 100.00 ms a step: no other is faster by 0.5 %");
  EXPECT_FALSE(only({line_of(6, 4, 100), line_of(6, 25, 100)}, 25, std::nullopt).cap_mb);
  EXPECT_FALSE(only({line_of(6, 4, 100), line_of(6, 25, 100)}, std::nullopt, std::nullopt).cap_mb);
}

TEST(CapAdvice, EachWorldSizeHasItsOwn) {
  auto lines = kCurve;
  lines.push_back(line_of(7, 4, 130));
  lines.push_back(line_of(7, 25, 120));
  const auto advice = advise(lines, 25, std::nullopt);
  ASSERT_EQ(advice.size(), 2u);
  EXPECT_EQ(advice[1].ranks, 7);
  EXPECT_FALSE(advice[1].cap_mb);
  EXPECT_EQ(advice[1].text,
            "at 7 ranks: keep bucket_cap_mb 25, 120.00 ms a step: no other is as fast");
}

TEST(CapAdvice, TheUsualCapMayBeAnotherOfTheSameBuckets) {
  auto lines = kCurve;
  lines.back().same_caps_mb = {30};
  EXPECT_EQ(only(lines, 30, std::nullopt).usual_mb, 30);
  EXPECT_FALSE(only(lines, 31, std::nullopt).usual_mb);
  SimulatedLine alone = line_of(3, 25, 100);
  alone.same_caps_mb = {30, 40};
  EXPECT_EQ(only({alone}, 25, std::nullopt).text,
            "at 3 ranks: all of these caps give the same buckets");
  EXPECT_TRUE(advise({line_of(3, 25, 100)}, 25, std::nullopt).empty());
}

}  // namespace
}  // namespace lockstep
