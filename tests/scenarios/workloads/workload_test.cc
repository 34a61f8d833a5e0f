#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "scenarios/manifest.h"
#include "scenarios/workloads/workload.h"
#include "tests/golden/torch/scenarios.h"

namespace lockstep {
namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.equal(b);
}

TEST(RandomSection, IsManualSeed) {
  at::manual_seed(123);
  const at::Tensor expected = at::randn({20, 10});
  at::randn({3});
  const RandomSection random(123);
  EXPECT_TRUE(same(at::randn({20, 10}), expected));
}

TEST(RandomSection, DrawsOfThreadsDoNotMix) {
  const auto draw = [](uint64_t seed) {
    const RandomSection random(seed);
    std::vector<at::Tensor> draws;
    for (int i = 0; i < 200; ++i) draws.push_back(at::randn({7}));
    return at::cat(draws);
  };
  const at::Tensor expected[] = {draw(0), draw(1), draw(2), draw(3)};
  at::Tensor found[4];
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] { found[seed] = draw(seed); });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(same(found[i], expected[i])) << i;
}

TEST(Models, RegisterWhatTheManifestSays) {
  for (const Part& part : {linear(10, 7), mlp({16, 24, 8}), mlp({5, 3}), mlp({4, 5, 6, 7}, "gelu")})
    for (const char* dtype : {"float32", "float64"}) {
      const auto manifest = manifest_of(part, dtype);
      ASSERT_TRUE(manifest);
      const NamedTensors parameters = build_model(part, dtype)->parameters();
      ASSERT_EQ(parameters.size(), manifest->parameters.size()) << part.kind;
      for (size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_EQ(parameters[i].name, manifest->parameters[i].name);
        EXPECT_EQ(parameters[i].tensor.sizes().vec(), manifest->parameters[i].shape);
        EXPECT_EQ(static_cast<int64_t>(parameters[i].tensor.nbytes()),
                  manifest->parameters[i].bytes());
        EXPECT_TRUE(parameters[i].tensor.requires_grad());
      }
    }
}

TEST(Models, MlpIsLayersAndActivations) {
  const auto model = build_model(mlp({4, 5, 3}, "tanh"), "float64");
  const NamedTensors p = model->parameters();
  const at::Tensor x = at::randn({6, 4}, at::kDouble);
  const at::Tensor hidden = at::tanh(at::mm(x, p[0].tensor.t()) + p[1].tensor);
  const at::Tensor expected = at::mm(hidden, p[2].tensor.t()) + p[3].tensor;
  EXPECT_TRUE(at::allclose(model->forward(x), expected, 1e-12, 1e-12));
}

TEST(Data, DyadicLiesOnItsGrid) {
  const Batch data = draw_data(dyadic(500, 6, 3), "float32");
  EXPECT_EQ(data.input.sizes().vec(), (std::vector<int64_t>{500, 6}));
  EXPECT_TRUE((data.input * 4096).frac().eq(0).all().item<bool>());
  EXPECT_FALSE((data.input * 1024).frac().eq(0).all().item<bool>());
  EXPECT_TRUE((data.target * 64).frac().eq(0).all().item<bool>());
  EXPECT_LE(data.input.abs().max().item<double>(), 3);
  EXPECT_GT(data.input.max().item<double>(), 2.9);
  EXPECT_LT(data.input.min().item<double>(), -2.9);
}

TEST(Data, SelectCopiesRows) {
  const Batch data = draw_data(randn(10, 3, 2), "float32");
  const Batch rows = select(data, {7, 2});
  EXPECT_TRUE(same(rows.input[0], data.input[7]));
  EXPECT_TRUE(same(rows.target[1], data.target[2]));
  rows.input.zero_();
  EXPECT_FALSE(data.input[7].eq(0).all().item<bool>());
}

TEST(Loss, FollowsItsOptions) {
  const at::Tensor output = at::tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2});
  const at::Tensor target = at::zeros({2, 2}, at::kDouble);
  EXPECT_EQ(loss_of(mse(), output, target, 3).item<double>(), 7.5);
  EXPECT_EQ(loss_of(mse("sum"), output, target, 3).item<double>(), 30);
  EXPECT_EQ(loss_of(mse("sum", 0.5), output, target, 3).item<double>(), 15);
  EXPECT_EQ(loss_of(mse("sum", 0.5, true), output, target, 3).item<double>(), 45);
}

TEST(Gradients, AreZeroedInPlaceOrUndefined) {
  const NamedTensors parameters = build_model(linear(2, 2), "float32")->parameters();
  clear_gradients(parameters, "zero");
  EXPECT_FALSE(parameters[0].tensor.grad().defined());
  at::Tensor bucket = at::ones({6});  // as with gradient_as_bucket_view
  parameters[0].tensor.mutable_grad() = bucket.narrow(0, 0, 4).view({2, 2});
  clear_gradients(parameters, "zero");
  EXPECT_TRUE(same(bucket, at::tensor({0.F, 0.F, 0.F, 0.F, 1.F, 1.F})));
  clear_gradients(parameters, "none");
  EXPECT_FALSE(parameters[0].tensor.grad().defined());
}

TEST(Requantize, RoundsToTheGrid) {
  at::Tensor weights = at::tensor({0.0, 0.26, -0.26, 0.49, 5.0});
  requantize({{"w", weights}}, 2);
  EXPECT_TRUE(same(weights, at::tensor({0.0, 0.5, -0.5, 0.5, 5.0})));
  requantize({{"w", weights}}, 0);
  EXPECT_TRUE(same(weights, at::tensor({0.0, 0.5, -0.5, 0.5, 5.0})));
}

TEST(SetUp, RanksDrawTheSameDataAndTheirOwnWeights) {
  Scenario scenario = mlp_scenario(4, 1);
  const auto first = set_up(scenario, "float32", 0);
  const auto second = set_up(scenario, "float32", 1);
  EXPECT_TRUE(same(first.data.input, second.data.input));
  const auto weight = [](const lockstep::Setup& setup) {
    return setup.training.parameters[0].tensor;
  };
  EXPECT_FALSE(same(weight(first), weight(second)));
  EXPECT_TRUE(same(weight(first), weight(set_up(scenario, "float32", 0))));
  EXPECT_TRUE(same(weight(first).to(at::kDouble), weight(set_up(scenario, "float64", 0))));
  scenario.rank_seeds = "equal";
  EXPECT_TRUE(same(weight(set_up(scenario, "float32", 1)), weight(first)));
  scenario.seed = 124;
  EXPECT_FALSE(same(weight(set_up(scenario, "float32", 0)), weight(first)));
}

// As in a single file: manual_seed, inputs, labels, model; other ranks draw only a model.
TEST(SetUp, GlobalDataFirstIsOneGenerator) {
  const Scenario scenario = linear_manual_split();
  at::manual_seed(123);
  const at::Tensor input = at::randn({20, 10});
  const at::Tensor target = at::randn({20, 10});
  const auto after_data = build_model(scenario.model, "float32");
  at::manual_seed(123);
  const auto without_data = build_model(scenario.model, "float32");
  const auto rank0 = set_up(scenario, "float32", 0);
  const auto rank1 = set_up(scenario, "float32", 1);
  EXPECT_TRUE(same(rank0.data.input, input));
  EXPECT_TRUE(same(rank0.data.target, target));
  EXPECT_TRUE(same(rank0.training.parameters[0].tensor, after_data->parameters()[0].tensor));
  EXPECT_FALSE(rank1.data.input.defined());
  EXPECT_TRUE(same(rank1.training.parameters[0].tensor, without_data->parameters()[0].tensor));
}

}  // namespace

}  // namespace lockstep
