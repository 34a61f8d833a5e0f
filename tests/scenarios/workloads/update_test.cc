#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>

#include "scenarios/workloads/update.h"
#include "tests/golden/torch/scenarios.h"

namespace lockstep {
namespace {

Part part(const std::string& kind,
          const std::vector<std::pair<std::string, OptionValue>>& options) {
  Part made{kind, {}};
  for (const auto& [key, value] : options) made.options.set(key, value);
  return made;
}

Part dynamic_scaling(int64_t growth_interval = 2) {
  return part("dynamic", {{"initial_scale", 1024.0},
                          {"growth_factor", 4.0},
                          {"backoff_factor", 0.5},
                          {"growth_interval", growth_interval},
                          {"overflow_step", int64_t{2}},
                          {"overflow_rank", int64_t{1}}});
}

void set_gradients(const NamedTensors& parameters, double value) {
  for (const NamedTensor& p : parameters)
    p.tensor.mutable_grad() = at::full_like(p.tensor.detach(), value);
}

TEST(LrSchedule, StepIsLibTorchs) {
  const at::Tensor weight = at::zeros({1}).requires_grad_();
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.3));
  torch::optim::StepLR theirs(optimizer, 3, 0.7);
  theirs.step();  // as Python's does at construction; LibTorch's alone is one step late
  const Part ours = part("step", {{"step_size", int64_t{3}}, {"gamma", 0.7}});
  for (int64_t step = 1; step <= 20; ++step) {
    EXPECT_NEAR(lr_at(ours, 0.3, step), optimizer.param_groups()[0].options().get_lr(), 1e-15)
        << step;
    optimizer.step();
    theirs.step();
  }
}

TEST(LrSchedule, FollowsItsFormula) {
  EXPECT_EQ(lr_at({"none", {}}, 0.3, 9), 0.3);
  const Part exponential = part("exponential", {{"gamma", 0.5}});
  EXPECT_EQ(lr_at(exponential, 0.5, 1), 0.5);
  EXPECT_EQ(lr_at(exponential, 0.5, 4), 0.0625);
  const Part cosine = part("cosine", {{"steps_total", int64_t{4}}, {"min_lr", 0.1}});
  EXPECT_DOUBLE_EQ(lr_at(cosine, 0.5, 1), 0.5);
  EXPECT_DOUBLE_EQ(lr_at(cosine, 0.5, 3), 0.3);
  EXPECT_DOUBLE_EQ(lr_at(cosine, 0.5, 5), 0.1);
  EXPECT_DOUBLE_EQ(lr_at(cosine, 0.5, 100), 0.1);
  const Part warmup = part("linear_warmup", {{"warmup_steps", int64_t{4}}, {"start_factor", 0.2}});
  EXPECT_DOUBLE_EQ(lr_at(warmup, 1, 1), 0.2);
  EXPECT_DOUBLE_EQ(lr_at(warmup, 1, 3), 0.6);
  EXPECT_DOUBLE_EQ(lr_at(warmup, 1, 5), 1);
  EXPECT_DOUBLE_EQ(lr_at(warmup, 1, 50), 1);
}

TEST(Clipping, LimitsTheNormOfAllGradientsTogether) {
  const NamedTensors parameters = build_model(linear(3, 1), "float64")->parameters();
  set_gradients(parameters, 2);  // three weights and a bias: norm 4
  clip_gradients(part("norm", {{"max_norm", 1.0}, {"norm_type", std::string("l2")}}), parameters);
  for (const NamedTensor& p : parameters)
    EXPECT_NEAR(p.tensor.grad().max().item<double>(), 0.5, 1e-6);
  set_gradients(parameters, 2);
  clip_gradients(part("norm", {{"max_norm", 5.0}, {"norm_type", std::string("l2")}}), parameters);
  EXPECT_EQ(parameters[0].tensor.grad().max().item<double>(), 2);
  clip_gradients(part("norm", {{"max_norm", 1.5}, {"norm_type", std::string("inf")}}), parameters);
  EXPECT_NEAR(parameters[1].tensor.grad().max().item<double>(), 1.5, 1e-5);
}

TEST(Clipping, LimitsElementsInTheirDtypeAndLeavesAbsentGradients) {
  const NamedTensors parameters = build_model(linear(2, 1), "float32")->parameters();
  parameters[0].tensor.mutable_grad() = at::tensor({-3.0F, 0.25F}).view({1, 2});
  clip_gradients(part("value", {{"max_value", 0.5}}), parameters);
  EXPECT_TRUE(parameters[0].tensor.grad().equal(at::tensor({-0.5F, 0.25F}).view({1, 2})));
  EXPECT_FALSE(parameters[1].tensor.grad().defined());
}

TEST(LossScale, FallsAfterASkipAndGrowsAfterGoodSteps) {
  LossScale scale(dynamic_scaling());
  EXPECT_EQ(scale.scale(), 1024);
  scale.end_step(true);
  EXPECT_EQ(scale.scale(), 512);
  scale.end_step(false);
  EXPECT_EQ(scale.scale(), 512);
  scale.end_step(false);
  EXPECT_EQ(scale.scale(), 2048);
  scale.end_step(false);
  scale.end_step(true);  // good steps start anew
  scale.end_step(false);
  EXPECT_EQ(scale.scale(), 1024);
  EXPECT_EQ(scale.skipped_steps, 2);
}

TEST(LossScale, OneInfinityAnywhereMakesAStepUnusable) {
  const NamedTensors parameters = build_model(linear(2, 2), "float32")->parameters();
  const LossScale scale(dynamic_scaling());
  set_gradients(parameters, 1024);
  EXPECT_TRUE(scale.unscale(parameters));
  EXPECT_TRUE(parameters[0].tensor.grad().equal(at::ones({2, 2})));
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    parameters[1].tensor.mutable_grad()[1] = bad;
    EXPECT_FALSE(scale.unscale(parameters));
  }
  parameters[1].tensor.mutable_grad() = at::Tensor();
  EXPECT_TRUE(scale.unscale(parameters));
}

Scenario scaled_scenario() {
  Scenario scenario = scenario_of(2, 4, linear(2, 2), randn(4, 2, 2));
  scenario.optimizer = adam();
  scenario.loss_scaling = dynamic_scaling();
  return scenario;
}

TEST(Update, SkippedStepChangesNoWeightAndNoMoment) {
  const Scenario scenario = scaled_scenario();
  Training training = build_training(scenario, "float32");
  set_gradients(training.parameters, 512);
  update(scenario, 1, &training);
  const at::Tensor weight = training.parameters[0].tensor.detach().clone();
  set_gradients(training.parameters, std::numeric_limits<double>::infinity());
  update(scenario, 2, &training);
  EXPECT_TRUE(training.parameters[0].tensor.equal(weight));
  EXPECT_TRUE(training.parameters[0].tensor.grad().equal(at::zeros({2, 2})));
  const NamedTensors state = training.optimizer->state();
  EXPECT_EQ(state[0].name, "weight.loss_scale_log2");
  EXPECT_EQ(state[0].tensor.item<int64_t>(), 9);
  EXPECT_EQ(state[2].name, "weight.skipped_steps");
  EXPECT_EQ(state[2].tensor.item<int64_t>(), 1);
  EXPECT_EQ(state[5].name, "weight.step");
  EXPECT_EQ(state[5].tensor.item<int64_t>(), 1);
  // A new training goes on with the scale that was saved.
  Training resumed = build_training(scenario, "float32");
  resumed.optimizer->load(state);
  EXPECT_EQ(resumed.loss_scale->scale(), 512);
  EXPECT_EQ(resumed.loss_scale->skipped_steps, 1);
}

TEST(Update, LossOverflowsWhereTheScenarioSaysSo) {
  const Scenario scenario = scaled_scenario();
  const Training training = build_training(scenario, "float32");
  EXPECT_EQ(loss_factor(scenario, training, 1, 1), 1024);
  EXPECT_EQ(loss_factor(scenario, training, 2, 0), 1024);
  EXPECT_TRUE(std::isinf(loss_factor(scenario, training, 2, 1)));
  EXPECT_TRUE(std::isinf(loss_factor(scenario, training, 2, -1)));
  const Scenario plain = scenario_of(2, 4, linear(2, 2), randn(4, 2, 2));
  EXPECT_EQ(loss_factor(plain, build_training(plain, "float32"), 2, 1), 1);
}

TEST(Update, ClipsByTheScheduledLearningRate) {
  Scenario scenario = scenario_of(2, 4, linear(1, 1), randn(4, 1, 1));
  scenario.optimizer = sgd(0.5);
  scenario.lr_schedule = part("exponential", {{"gamma", 0.5}});
  scenario.clipping = part("value", {{"max_value", 2.0}});
  Training training = build_training(scenario, "float64");
  const double before = training.parameters[0].tensor.item<double>();
  set_gradients(training.parameters, 100);
  update(scenario, 2, &training);
  EXPECT_DOUBLE_EQ(training.parameters[0].tensor.item<double>(), before - 0.25 * 2);
}

}  // namespace

}  // namespace lockstep
