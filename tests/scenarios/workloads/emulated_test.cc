#include "scenarios/workloads/emulated.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "scenarios/base/clock.h"
#include "scenarios/layer_times.h"
#include "tests/quiet_time.h"
#include "tests/scenarios/part_of.h"

namespace lockstep {
namespace {

Scenario scenario_of(Part model) {
  Scenario scenario;
  scenario.model = std::move(model);
  scenario.compute = part_of("emulated", {{"forward_ms", 10.0}});
  scenario.loss = part_of(
      "mse", {{"reduction", std::string("sum")}, {"scale", 1.0}, {"times_world_size", false}});
  return scenario;
}

Scenario emulated_mlp() {
  return scenario_of(part_of("mlp", {{"in_features", int64_t{6}},
                                     {"hidden", std::vector<int64_t>{5}},
                                     {"out_features", int64_t{4}},
                                     {"activation", std::string("relu")},
                                     {"bias", true}}));
}

Scenario emulated_gpt() {
  return scenario_of(part_of("gpt", {{"vocabulary", int64_t{7}},
                                     {"context", int64_t{3}},
                                     {"layers", int64_t{1}},
                                     {"heads", int64_t{2}},
                                     {"width", int64_t{8}}}));
}

std::unique_ptr<Model> emulated(const Scenario& scenario, const std::string& dtype = "float64") {
  const RandomSection random(3);
  return build_emulated(scenario, dtype);
}

Batch batch(int64_t samples) {
  const RandomSection random(5);
  return {at::randn({samples, 6}, at::kDouble), at::randn({samples, 4}, at::kDouble)};
}

void backward(const Scenario& scenario, Model& model, const Batch& data) {
  loss_of(scenario.loss, model.forward(data.input), data.target, 1).backward();
}

// Copies.
std::vector<at::Tensor> gradients(const Model& model) {
  std::vector<at::Tensor> all;
  for (const NamedTensor& parameter : model.parameters())
    all.push_back(parameter.tensor.grad().clone());
  return all;
}

double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

TEST(Emulated, HasTheWeightsOfTheModel) {
  for (const Scenario& scenario : {emulated_mlp(), emulated_gpt()}) {
    const auto model = emulated(scenario, "float32");
    const RandomSection random(3);
    const NamedTensors real = build_model(scenario.model, "float32")->parameters();
    const NamedTensors own = model->parameters();
    ASSERT_EQ(own.size(), real.size());
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own[i].name, real[i].name);
      EXPECT_TRUE(at::equal(own[i].tensor, real[i].tensor));
    }
  }
}

TEST(Emulated, GivesTheOutputsAndGradientsOfTheModelsShapes) {
  Scenario scenario = emulated_gpt();
  scenario.loss.kind = "cross_entropy";
  const auto model = emulated(scenario);
  const at::Tensor tokens = at::arange(6, at::kLong).view({2, 3});
  const at::Tensor output = model->forward(tokens);
  EXPECT_EQ(output.sizes().vec(), (std::vector<int64_t>{2, 3, 7}));
  EXPECT_EQ(output.scalar_type(), at::kDouble);
  backward(scenario, *model, {tokens, tokens});
  for (const NamedTensor& parameter : model->parameters()) {
    ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
    EXPECT_GT(parameter.tensor.grad().abs().min().item<double>(), 0) << parameter.name;
  }
}

// Only so do lanes with a whole batch hold.
TEST(Emulated, GradientsOfShardsAddUp) {
  const Scenario scenario = emulated_mlp();
  const auto model = emulated(scenario);
  const Batch all = batch(6);
  backward(scenario, *model, all);
  const auto whole = gradients(*model);
  clear_gradients(model->parameters(), "none");
  backward(scenario, *model, {all.input.narrow(0, 0, 2), all.target.narrow(0, 0, 2)});
  const auto first = gradients(*model);
  EXPECT_GT(distance(first, whole), 1e-3);
  backward(scenario, *model, {all.input.narrow(0, 2, 4), all.target.narrow(0, 2, 4)});
  EXPECT_LT(distance(gradients(*model), whole), 1e-12);
}

TEST(Emulated, GradientsDependOnSamplesAndWeights) {
  const Scenario scenario = emulated_mlp();
  const auto model = emulated(scenario);
  backward(scenario, *model, batch(2));
  const auto first = gradients(*model);
  clear_gradients(model->parameters(), "none");
  Batch other = batch(2);
  other.input[0][3].add_(1);
  backward(scenario, *model, other);
  EXPECT_GT(distance(gradients(*model), first), 1e-6);
  clear_gradients(model->parameters(), "none");
  {
    const c10::NoGradGuard no_grad;
    model->parameters()[2].tensor.view({-1})[0].add_(1);
  }
  backward(scenario, *model, batch(2));
  EXPECT_GT(distance(gradients(*model), first), 1e-6);
}

// Gradients lie in memory that is kept, whoever takes it meanwhile.
TEST(Emulated, ClearingGradientsChangesNothing) {
  const Scenario scenario = emulated_mlp();
  std::vector<std::vector<at::Tensor>> ends;
  for (const char* clearing : {"none", "zero"}) {
    const auto model = emulated(scenario);
    const void* place = nullptr;
    for (int step = 1; step <= 4; ++step) {
      clear_gradients(model->parameters(), clearing);
      backward(scenario, *model, batch(step));
      const void* now = model->parameters()[0].tensor.grad().data_ptr();
      EXPECT_TRUE(step == 1 || now == place) << clearing << ", step " << step;
      place = now;
    }
    ends.push_back(gradients(*model));
  }
  EXPECT_EQ(distance(ends[0], ends[1]), 0);
}

TEST(Emulated, AFrozenLayerHasNoGradient) {
  const Scenario scenario = emulated_mlp();
  const auto model = emulated(scenario);
  model->parameters()[0].tensor.set_requires_grad(false);
  backward(scenario, *model, batch(2));
  EXPECT_FALSE(model->parameters()[0].tensor.grad().defined());
  EXPECT_TRUE(model->parameters()[1].tensor.grad().defined());
}

TEST(Emulated, WaitsForItsClockIfItHasOne) {
  const Scenario scenario = emulated_mlp();
  const auto model = emulated(scenario);
  ComputeClock clock({{"fc1", 20, 40, 70}, {"fc2", 10, 30, 30}}, 2);
  EXPECT_TRUE(model->run_by(&clock));
  int64_t begin = now_ns();
  const at::Tensor output = model->forward(batch(2).input);
  EXPECT_GE(now_ns() - begin, 30'000'000);
  std::vector<int64_t> ready;
  for (const size_t p : {2, 0})
    model->parameters()[p].tensor.register_hook(
        [&](const at::Tensor&) { ready.push_back(now_ns()); });
  begin = now_ns();
  clock.begin_backward();
  output.sum().backward();
  ASSERT_EQ(ready.size(), 2U);
  EXPECT_GE(ready[0] - begin, 30'000'000) << "fc2.weight";
  EXPECT_GE(ready[1] - begin, 70'000'000) << "fc1.weight";
  model->run_by(nullptr);
  const QuietTime time;
  model->forward(batch(2).input);
  EXPECT_LT(time.ms(), 30);
  EXPECT_FALSE(build_model(scenario.model, "float64")->run_by(&clock));
}

}  // namespace
}  // namespace lockstep
