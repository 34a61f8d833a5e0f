#include "scenarios/scenario.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/plan/agreement.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

const char* kHook = R"(/comm_hook={"kind":"post_local_sgd","start_step":3})";
const char* kAveraging = R"(/model_averaging={"kind":"periodic","period":3,"warmup_steps":2})";

Strings of_8_steps(Strings sets) {
  sets.insert(sets.begin(), "/steps=8");
  return sets;
}
Expected<RunPlan> plan_of_8_steps(const Strings& sets) { return plan_of(of_8_steps(sets)); }
std::string errors_of_8_steps(const Strings& sets) { return errors_of(of_8_steps(sets)); }

TEST(LocalSteps, AreAveragedAsPyTorchDoes) {
  const auto plan = plan_of_8_steps({kHook, kAveraging});
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  const Scenario& scenario = plan.value().scenario;
  EXPECT_TRUE(has_own_states(scenario));
  std::string gradients, parameters;
  for (int64_t step = 1; step <= 8; ++step) {
    gradients += averages_gradients(scenario, step) ? "g" : "-";
    parameters += averages_parameters(scenario, step) ? "p" : "-";
  }
  EXPECT_EQ(gradients, "gg------");
  EXPECT_EQ(parameters, "--p--p--");
  EXPECT_FALSE(plan.value().shards);
  EXPECT_EQ(plan.value().replay.division_first_step, "divide_before");
  EXPECT_FALSE(has_own_states(plan_of_8_steps({}).value().scenario));
}

TEST(LocalSteps, ThePlanKnowsWhatRanksHaveInCommon) {
  const auto plan = plan_of_8_steps({kHook, kAveraging});
  ASSERT_TRUE(plan);
  const AgreementRule rule(plan.value().scenario);
  EXPECT_FALSE(rule.is_simple());
  EXPECT_EQ(rule.between_ranks(2, 1), Agreement::all);
  EXPECT_EQ(rule.between_ranks(3, 1), Agreement::parameters);
  EXPECT_EQ(rule.between_ranks(4, 1), Agreement::nothing);
  EXPECT_EQ(rule.with_replay(4, 1), Agreement::all);
  EXPECT_EQ(rule.last_step(1, Agreement::parameters), 6);
  EXPECT_EQ(rule.last_step(1, Agreement::all), 2);
  EXPECT_EQ(plan.value().agreement,
            "ranks and one device: everything up to step 2, later parameters alone, when they are "
            "averaged: after step 3 and every 3 steps from there. Each rank and its own replay: "
            "everything");
  EXPECT_EQ(plan_from_json(as_json(plan.value())).agreement, plan.value().agreement);
}

// A mistake of the user's own: then nothing may differ, and the lanes say that it does.
TEST(LocalSteps, WithoutAnAverageNothingIsForgiven) {
  const auto plan = plan_of_8_steps({kHook});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(AgreementRule(plan.value().scenario).is_simple());
  EXPECT_TRUE(has_own_states(plan.value().scenario));
  EXPECT_EQ(plan.value().agreement, "");
}

TEST(LocalSteps, WhatTheyCannotGoWithIsRefused) {
  EXPECT_EQ(errors_of_8_steps({kHook, R"(/model_averaging={"kind":"periodic","warmup_steps":8})"}),
            "/model_averaging/warmup_steps: /model_averaging/warmup_steps is 8: no step of 8 is "
            "averaged; expected less than 8");
  EXPECT_EQ(errors_of_8_steps({kHook, "/reducer/find_unused_parameters=true"}).substr(0, 33),
            "/reducer/find_unused_parameters: ");
  EXPECT_EQ(
      errors_of_8_steps({kHook, "/reducer/kind=flat"}),
      "/comm_hook/kind: reducer \"flat\" has no comm hooks; expected reducer bucketed or c10d");
  EXPECT_EQ(
      errors_of_8_steps({kAveraging, R"(/checkpoint={"kind":"save_and_resume","after_step":2})"}),
      "/checkpoint: a checkpoint holds the state of one rank; expected no checkpoint, or "
      "ranks that do not part");
}

TEST(LocalSteps, LaneRoundingDoesNotApply) {
  const auto plan = plan_of_8_steps({kHook, kAveraging, R"(/lanes=["replica","rounding"])"});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan.value().not_applicable.size(), 1U);
  EXPECT_EQ(plan.value().not_applicable[0].first, "rounding");
}

}  // namespace
}  // namespace lockstep
