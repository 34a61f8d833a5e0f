#include "sim/explore/cut.h"

#include <gmock/gmock.h>

#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Strings kNames = {"weight", "bias"};

RunPlan explored(const Strings& sets) {
  auto plan = explorable(plan_of(sets).value());
  EXPECT_TRUE(plan);
  return plan.value();
}

std::string why_not(const Strings& sets) {
  const auto plan = explorable(plan_of(sets).value());
  if (plan) return "";
  std::string all;
  for (const InputError& error : plan.errors()) all += error.pointer + ": " + error.message + "\n";
  return all;
}

TEST(Cut, WhatIsExploredAddsAsTheScenarioSaysBesideItsGoldenRun) {
  const RunPlan plan = explored({R"(/communicator={"kind": "gloo", "algorithm": "bcube"})",
                                 R"(/lanes=["replica", "float64"])"});
  EXPECT_EQ(plan.scenario.communicator.kind, "local");
  EXPECT_EQ(plan.scenario.communicator.options.text("algorithm"), "bcube");
  EXPECT_EQ(plan.replay.algorithm, "bcube");
  EXPECT_THAT(plan.goldens, ElementsAre("replay"));
}

TEST(Cut, WhatHasNoSchedulesIsBadInput) {
  EXPECT_THAT(why_not({"/world_size=1"}), HasSubstr("/world_size: one rank"));
  EXPECT_THAT(why_not({"/reducer/kind=sharded"}), HasSubstr("/reducer/kind: "));
  EXPECT_THAT(why_not({R"(/reducer={"kind": "c10d", "static_graph": true})"}),
              HasSubstr("/reducer/static_graph: "));
  EXPECT_EQ(why_not({R"(/reducer={"kind": "bucketed", "static_graph": true})"}), "");
  EXPECT_THAT(why_not({R"(/mutants=[{"kind": "skip_wait"}, {"kind": "flip_bit", "rank": 1}])"}),
              HasSubstr("/mutants/1/kind: explore does not know mutant \"flip_bit\""));
  EXPECT_THAT(why_not({R"(/faults=[{"kind": "kill", "rank": 1, "step": 2}])"}),
              HasSubstr("/faults: "));
}

TEST(Cut, FewerStepsRanksAndParametersKeepEachRanksSamples) {
  const RunPlan plan = explored({"/batch_size=12"});
  const auto cut = cut_down(plan, {.steps = 2, .world_size = 3, .parameters = {"weight"}}, kNames);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->scenario.steps, 2);
  EXPECT_EQ(cut->scenario.world_size, 3);
  EXPECT_EQ(cut->scenario.batch_size, 9);
  EXPECT_EQ(cut->scenario.data.options.integer("samples"), 18);
  EXPECT_THAT(cut->scenario.frozen, ElementsAre("bias"));
  EXPECT_THAT(cut->goldens, ElementsAre("replay"));
  EXPECT_EQ(cut->file, plan.file);
}

TEST(Cut, AMutantThatWouldNotActIsNoSmallerCase) {
  const RunPlan plan = explored({R"(/mutants=[{"kind": "skip_wait", "rank": 2, "step": 2}])"});
  EXPECT_TRUE(cut_down(plan, {.steps = 2, .world_size = 3, .parameters = kNames}, kNames));
  EXPECT_FALSE(cut_down(plan, {.steps = 1, .world_size = 3, .parameters = kNames}, kNames));
  EXPECT_FALSE(cut_down(plan, {.steps = 2, .world_size = 2, .parameters = kNames}, kNames));
}

}  // namespace
}  // namespace lockstep
