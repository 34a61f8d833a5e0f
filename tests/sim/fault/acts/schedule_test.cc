#include "sim/fault/acts/schedule.h"
#include "tests/scenarios/fault_of.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

Scenario scenario_with(Fault part, int64_t world_size = 3, int64_t steps = 10) {
  Scenario scenario;
  scenario.seed = 7;
  scenario.world_size = world_size;
  scenario.steps = steps;
  scenario.faults = {std::move(part)};
  return scenario;
}

Fault stall(const std::string& distribution, double spread, double probability = 1) {
  return fault_of(FaultKind::stall, {{"phase", std::string("forward")},
                                     {"duration_ms", 10.0},
                                     {"distribution", distribution},
                                     {"spread", spread},
                                     {"probability", probability}});
}

TEST(FaultSchedule, AProcessFaultActsOnceAtItsAddress) {
  const Scenario s =
      scenario_with(fault_of(FaultKind::kill, {{"rank", int64_t{1}}, {"step", int64_t{4}}}));
  const FaultSchedule schedule(s, 1);
  EXPECT_EQ(schedule.at_phase(Phase::backward, 4).size(), 1u);
  EXPECT_TRUE(schedule.at_phase(Phase::backward, 3).empty());
  EXPECT_TRUE(schedule.at_phase(Phase::backward, 5).empty());
  EXPECT_TRUE(schedule.at_phase(Phase::forward, 4).empty());
  EXPECT_TRUE(FaultSchedule(s, 0).at_phase(Phase::backward, 4).empty());
}

TEST(FaultSchedule, BeforeTheStepsItIsStepZero) {
  const Scenario s = scenario_with(
      fault_of(FaultKind::kill, {{"rank", int64_t{2}}, {"phase", std::string("construction")}}));
  EXPECT_EQ(FaultSchedule(s, 2).at_phase(Phase::construction, 0).size(), 1u);
  EXPECT_TRUE(FaultSchedule(s, 2).at_phase(Phase::construction, 1).empty());
}

TEST(FaultSchedule, ABucketIsAPlaceOfItsOwn) {
  const Scenario s =
      scenario_with(fault_of(FaultKind::stop, {{"rank", int64_t{0}}, {"bucket", int64_t{2}}}));
  EXPECT_EQ(FaultSchedule(s, 0).at_bucket(2, 1).size(), 1u);
  EXPECT_TRUE(FaultSchedule(s, 0).at_bucket(1, 1).empty());
  EXPECT_TRUE(FaultSchedule(s, 0).at_phase(Phase::backward, 1).empty());
}

TEST(FaultSchedule, AWanderingRankMovesOn) {
  const Scenario s =
      scenario_with(fault_of(FaultKind::wandering, {{"factor", 3.0}, {"every_steps", int64_t{2}}}));
  for (int64_t step = 1; step <= 10; ++step) {
    const int64_t slow = (step - 1) / 2 % 3;
    for (int64_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(FaultSchedule(s, rank).slowdown(step), rank == slow ? 3.0 : 1.0) << step;
  }
}

TEST(FaultSchedule, APeriodicPauseComesEveryKSteps) {
  const Scenario s = scenario_with(fault_of(
      FaultKind::periodic_pause,
      {{"phase", std::string("forward")}, {"duration_ms", 1.0}, {"every_steps", int64_t{3}}}));
  for (int64_t step = 1; step <= 10; ++step)
    EXPECT_EQ(FaultSchedule(s, 0).at_phase(Phase::forward, step).size(), step % 3 == 0 ? 1u : 0u);
}

TEST(FaultSchedule, DrawsHaveTheirDistributionAndDependOnTheAddressAlone) {
  constexpr int64_t kSteps = 20'000;
  const auto draws = [&](const Fault& part) {
    const Scenario s = scenario_with(part, 3, kSteps);
    const FaultSchedule schedule(s, 1), again(s, 1);
    std::vector<double> values;
    for (int64_t step = 1; step <= kSteps; ++step)
      for (const Act& act : schedule.at_phase(Phase::forward, step)) {
        values.push_back(act.duration_ms);
        EXPECT_EQ(again.at_phase(Phase::forward, step).at(0).duration_ms, act.duration_ms);
      }
    std::sort(values.begin(), values.end());
    return values;
  };
  const auto uniform = draws(stall("uniform", 0.5));
  EXPECT_NEAR(uniform.front(), 5, 0.01);
  EXPECT_NEAR(uniform.back(), 15, 0.01);
  const auto lognormal = draws(stall("lognormal", 0.3));
  EXPECT_NEAR(lognormal[kSteps / 2], 10, 0.15);
  EXPECT_NEAR(lognormal[kSteps * 84 / 100], 10 * std::exp(0.3), 0.3);
  const auto pareto = draws(stall("pareto", 2));
  EXPECT_GE(pareto.front(), 10);
  EXPECT_NEAR(pareto[kSteps / 2], 10 * std::sqrt(2.0), 0.3);
  const auto rare = draws(stall("constant", 0.5, 0.02));
  EXPECT_NEAR(static_cast<double>(rare.size()), 0.02 * kSteps, 5 * std::sqrt(0.02 * kSteps));
}

}  // namespace
}  // namespace lockstep
