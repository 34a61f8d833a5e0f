#include "sim/worker/profile.h"

#include <gtest/gtest.h>

#include <map>

#include "scenarios/layer_times.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

RunPlan planned(const Strings& sets) {
  const auto plan = plan_of(sets);
  EXPECT_TRUE(plan) << errors_of(sets);
  return plan.value();
}

TEST(MeasureLayers, EveryLayerHasATime) {
  const RunPlan plan = planned(
      {R"(/model={"kind": "mlp", "in_features": 3, "hidden": [900, 900], "out_features": 2})"});
  const LayerProfile profile = measure_layers(plan, 5);
  EXPECT_EQ(problem_with(profile, plan.scenario, *manifest_of(plan.scenario.model, "float32")), "");
  EXPECT_EQ(profile.samples, 6);
  ASSERT_EQ(profile.layers.size(), 3U);
  for (const LayerTime& layer : profile.layers) {
    EXPECT_GT(layer.forward_ms, 0) << layer.layer;
    EXPECT_GT(layer.backward_ms, 0) << layer.layer;
  }
  EXPECT_GT(profile.layers[1].backward_ms, profile.layers[2].backward_ms)
      << "810,000 weights, not 1,800";
}

// What has no parameters of its own counts for a neighbour; frozen layers count too.
TEST(MeasureLayers, LayersWithoutParametersAreTheirNeighbours) {
  const RunPlan plan =
      planned({R"(/model={"kind": "gpt", "vocabulary": 9, "context": 4, "layers": 1, "heads": 2,
                  "width": 8})",
               R"(/data={"kind": "tokens", "samples": 24, "vocabulary": 9, "length": 4})",
               R"(/loss={"kind": "cross_entropy"})", R"(/frozen=["norm"])"});
  std::map<std::string, LayerTime> layers;
  for (const LayerTime& layer : measure_layers(plan, 3).layers) layers[layer.layer] = layer;
  EXPECT_EQ(layers.at("head").forward_ms, 0);
  EXPECT_EQ(layers.at("block1.attention").backward_ms, 0);
  EXPECT_EQ(layers.at("norm").backward_ms, 0);
  EXPECT_GT(layers.at("norm").forward_ms, 0) << "and the head's";
  EXPECT_GT(layers.at("block1.attention.qkv").backward_ms, 0);
  EXPECT_GT(layers.at("tokens").backward_ms, 0);
}

}  // namespace
}  // namespace lockstep
