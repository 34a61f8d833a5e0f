#include <gtest/gtest.h>

#include "sim/plan/plan.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using Strings = std::vector<std::string>;

// "pointer" or "pointer: allowed" of each error, from the schema or from the plan.
std::string errors_of(const Strings& sets) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("f.json", kScenario), {sets, {}});
  InputErrors errors;
  if (!file) {
    errors = file.errors();
  } else {
    const auto plan = make_plan(file.value().combinations[0].scenario);
    if (!plan) errors = plan.errors();
  }
  std::string all;
  for (const InputError& e : errors)
    all += (all.empty() ? "" : "\n") + e.pointer + (e.allowed.empty() ? "" : ": " + e.allowed);
  return all;
}

RunPlan plan_of(const Strings& sets) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("f.json", kScenario), {sets, {}});
  EXPECT_TRUE(file) << (file ? "" : to_text(file.errors()[0]));
  const auto plan = make_plan(file.value().combinations[0].scenario);
  EXPECT_TRUE(plan) << (plan ? "" : to_text(plan.errors()[0]));
  return plan ? plan.value() : RunPlan{};
}

const std::string kScaling = R"(/loss_scaling={"kind": "dynamic"})";

TEST(TrainingCheck, EveryKindHasDefaults) {
  for (const std::string optimizer : {"adam", "adamw", "adagrad", "rmsprop"})
    EXPECT_EQ(errors_of({R"(/optimizer={"kind": ")" + optimizer + "\"}"}), "") << optimizer;
  const Scenario s = plan_of({R"(/lr_schedule={"kind": "cosine", "steps_total": 9})",
                              R"(/clipping={"kind": "norm", "max_norm": 1})", kScaling})
                         .scenario;
  EXPECT_EQ(s.lr_schedule.options.number("min_lr"), 0);
  EXPECT_EQ(s.clipping.options.text("norm_type"), "l2");
  EXPECT_EQ(s.loss_scaling.options.number("initial_scale"), 65536);
  EXPECT_EQ(s.loss_scaling.options.integer("growth_interval"), 2000);
  EXPECT_EQ(s.loss_scaling.options.integer("overflow_step"), 0);
}

TEST(TrainingCheck, OptionsOfAnotherKindAreRefused) {
  const auto at = [](const std::string& set) {
    const std::string errors = errors_of({set});
    return errors.substr(0, errors.find(':'));
  };
  EXPECT_EQ(at(R"(/optimizer={"kind": "adagrad", "momentum": 0.9})"), "/optimizer/momentum");
  EXPECT_EQ(at(R"(/lr_schedule={"kind": "none", "gamma": 0.9})"), "/lr_schedule/gamma");
  EXPECT_EQ(at(R"(/clipping={"kind": "value", "max_value": 1, "max_norm": 1})"),
            "/clipping/max_norm");
  EXPECT_EQ(at(R"(/lr_schedule={"kind": "step"})").find("/lr_schedule"), 0U);
}

TEST(TrainingCheck, ScalesArePowersOfTwo) {
  EXPECT_EQ(errors_of({kScaling, "/loss_scaling/initial_scale=1000"}),
            "/loss_scaling/initial_scale: a power of two");
  EXPECT_EQ(errors_of({kScaling, "/loss_scaling/growth_factor=3"}),
            "/loss_scaling/growth_factor: a power of two");
  EXPECT_EQ(errors_of({kScaling, "/loss_scaling/backoff_factor=1"}),
            "/loss_scaling/backoff_factor: a power of two below 1");
  EXPECT_EQ(errors_of({kScaling, "/steps=4", "/loss_scaling/overflow_step=5"}),
            "/loss_scaling/overflow_step: a step up to 4, or 0");
  EXPECT_EQ(errors_of({kScaling, "/world_size=4", "/loss_scaling/overflow_rank=4"}),
            "/loss_scaling/overflow_rank: a rank from 0 to 3");
}

TEST(TrainingCheck, LowestLearningRateIsNotTheHighest) {
  EXPECT_EQ(errors_of({R"(/optimizer={"kind": "sgd", "lr": 0.1})",
                       R"(/lr_schedule={"kind": "cosine", "steps_total": 9, "min_lr": 0.5})"}),
            "/lr_schedule/min_lr: at most 0.1");
}

TEST(TrainingCheck, MutantsNeedWhatTheyBreak) {
  const std::string at = "/mutants/0/kind: ";
  const auto with = [](const std::string& kind) {
    return R"(/mutants=[{"kind": ")" + kind + "\"}]";
  };
  EXPECT_EQ(errors_of({with("clip_before_sum")}), at + "a clipping of kind norm or value");
  const std::string norm = R"(/clipping={"kind": "norm", "max_norm": 1})";
  EXPECT_EQ(errors_of({with("clip_before_sum"), norm}),
            at + "reducer manual, or a clipping of kind value");
  EXPECT_EQ(errors_of({with("clip_before_sum"), norm, "/reducer/kind=manual"}), "");
  EXPECT_EQ(errors_of({with("local_skip")}), at + "a loss_scaling of kind dynamic");
  EXPECT_EQ(errors_of({with("stale_momentum"), R"(/optimizer={"kind": "sgd", "lr": 0.1})"}),
            at + "a momentum > 0, or another optimizer");
  EXPECT_EQ(errors_of({with("wrong_lr")}), "");
}

TEST(TrainingCheck, RoundingKnowsNoClippedGradients) {
  const std::string lanes = R"(/lanes=["rounding", "replica"])";
  EXPECT_TRUE(plan_of({lanes}).rounding);
  for (const std::string& set :
       {std::string(R"(/clipping={"kind": "value", "max_value": 1})"), kScaling}) {
    const RunPlan plan = plan_of({lanes, set});
    EXPECT_FALSE(plan.rounding);
    ASSERT_EQ(plan.not_applicable.size(), 1U);
    EXPECT_EQ(plan.not_applicable[0].first, "rounding");
  }
}

}  // namespace
}  // namespace lockstep
