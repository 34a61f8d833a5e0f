#include <gtest/gtest.h>

#include <cmath>

#include "tests/golden/torch/judged.h"

namespace lockstep {
namespace {

TEST(CommunicationBound, HoldsForEveryOrderAndDivision) {
  for (const char* algorithm : {"ring", "bcube", "halving_doubling", "ring_chunked"})
    for (const char* division : {"multiply_before", "divide_before", "divide_after"})
      for (int64_t world_size : {1, 2, 3, 6, 7}) {
        ReplayRule rule;
        rule.algorithm = algorithm;
        rule.division_first_step = rule.division_later = division;
        for (const StatisticStep& step :
             judged(make_communication_lane, mlp_scenario(world_size, 3), rule, [](auto&) {})) {
          EXPECT_LE(step.r, kCommunicationThreshold) << algorithm << division << world_size;
          EXPECT_GT(step.control_r, kCommunicationThreshold) << algorithm << world_size;
        }
      }
}

TEST(CommunicationBound, OfOneRankIsNothing) {
  EXPECT_EQ(judged(make_communication_lane, mlp_scenario(1, 1), {}, [](auto&) {})[0].r, 0);
}

// Eight units in the last place of one element: less than rounding of a full batch, but more than
// three additions lose.
TEST(CommunicationBound, NamesTheDamagedTensor) {
  const Scenario scenario = mlp_scenario(4, 1);
  const StateLayout layout = statistic_item(scenario).layout;
  for (size_t entry : {0u, 3u, 7u}) {
    const auto damage = [&](std::vector<std::byte>& state) {
      float* gradient = gradient_in(layout, entry, state);
      int64_t largest = 0;
      for (int64_t i = 1; i < layout.entries[entry].numel; ++i)
        if (std::abs(gradient[i]) > std::abs(gradient[largest])) largest = i;
      gradient[largest] *= 1 + 1e-4F;
    };
    const StatisticStep step = judged(make_communication_lane, scenario, {}, damage)[0];
    EXPECT_GT(step.r, kCommunicationThreshold);
    EXPECT_EQ(step.entry, static_cast<int64_t>(entry));
  }
}

TEST(CommunicationBound, NanAndInfinityAreBeyondIt) {
  const Scenario scenario = mlp_scenario(2, 1);
  const StateLayout layout = statistic_item(scenario).layout;
  for (const float value : {std::nanf(""), HUGE_VALF}) {
    const auto damage = [&](auto& state) { gradient_in(layout, 2, state)[5] = value; };
    const StatisticStep step = judged(make_communication_lane, scenario, {}, damage)[0];
    EXPECT_EQ(step.r, std::numeric_limits<double>::infinity());
    EXPECT_EQ(step.entry, 2);
  }
}

TEST(CommunicationBound, AWrongDivisorShows) {
  ReplayRule rule;
  Scenario scenario = mlp_scenario(3, 1);
  scenario.loss = mse("sum");
  EXPECT_LE(judged(make_communication_lane, scenario, rule, [](auto&) {})[0].r,
            kCommunicationThreshold);  // averaged, whatever the loss is
  const StateLayout layout = statistic_item(scenario).layout;
  const auto damage = [&](std::vector<std::byte>& state) {
    float* gradient = gradient_in(layout, 0, state);
    for (int64_t i = 0; i < layout.entries[0].numel; ++i) gradient[i] *= 0.75F;
  };
  EXPECT_GT(judged(make_communication_lane, scenario, rule, damage)[0].r, 1000);
}

Scenario with_bound(const char* key, double bound, int64_t steps) {
  Scenario scenario = mlp_scenario(3, steps);
  scenario.comm_hook.kind = "registered";
  scenario.comm_hook.options.set("name", std::string("lossy"));
  scenario.comm_hook.options.set(key, bound);
  return scenario;
}

// Of a hook that loses a tenth of every gradient.
std::vector<StatisticStep> of_a_tenth(const Scenario& scenario) {
  const StateLayout layout = statistic_item(scenario).layout;
  return judged(make_communication_lane, scenario, {}, [&](std::vector<std::byte>& state) {
    for (size_t e = 0; e < layout.entries.size(); ++e) {
      if (layout.entries[e].kind != StateKind::gradient) continue;
      float* gradient = gradient_in(layout, e, state);
      for (int64_t i = 0; i < layout.entries[e].numel; ++i) gradient[i] *= 0.9F;
    }
  });
}

TEST(HookBound, OfOneStepIsAPartOfTheMean) {
  for (const double bound : {0.05, 0.2}) {
    const auto steps = of_a_tenth(with_bound("error", bound, 2));
    for (const StatisticStep& step : steps) EXPECT_NEAR(step.r, 0.1 / bound, 1e-5);
    EXPECT_GT(steps[0].control_r, 1);
    EXPECT_TRUE(steps[0].has_control);
    EXPECT_FALSE(steps[1].has_control);
  }
}

TEST(HookBound, OfWhatIsOwedAddsUp) {
  const auto steps = of_a_tenth(with_bound("owed", 0.25, 6));
  EXPECT_NEAR(steps[0].r, 0.4, 1e-5);
  EXPECT_LT(steps[1].r, 1);
  EXPECT_GT(steps[5].r, 1);
  // Who pays everything back owes nothing.
  const Scenario paid = with_bound("owed", 0.25, 3);
  for (const StatisticStep& step : judged(make_communication_lane, paid, {}, [](auto&) {}))
    EXPECT_LT(step.r, 1e-5);
}

TEST(HookBound, SoWideThatARankMayBeMissingHasNoControl) {
  const auto steps = of_a_tenth(with_bound("error", 20, 3));
  EXPECT_FALSE(steps[0].has_control);
  EXPECT_TRUE(steps[2].has_control);
  EXPECT_LT(steps[2].control_r, 1);
}

TEST(HookBound, NanIsBeyondIt) {
  const Scenario scenario = with_bound("error", 0.2, 1);
  const StateLayout layout = statistic_item(scenario).layout;
  const auto damage = [&](auto& state) { gradient_in(layout, 2, state)[5] = std::nanf(""); };
  const StatisticStep step = judged(make_communication_lane, scenario, {}, damage)[0];
  EXPECT_EQ(step.r, std::numeric_limits<double>::infinity());
  EXPECT_EQ(step.entry, 2);
}

}  // namespace
}  // namespace lockstep
