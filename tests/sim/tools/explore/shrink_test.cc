#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "sim/tools/explore/shrink.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

// Fails where the script holds all needed decisions and the case is large enough.
class FakeLab : public ShrinkLab {
 public:
  ExploreCase needed{.steps = 2, .world_size = 3, .parameters = {"b"}};
  Script decisions = {{4, 1}, {9, 2}};
  int64_t trials = 0, most_trials = 1000;

  std::optional<std::vector<Choice>> search(const ExploreCase& tried) override {
    Script noisy = decisions;
    noisy.insert(noisy.begin() + std::min<std::ptrdiff_t>(1, std::ssize(noisy)),
                 {{5, 1}, {6, 1}, {7, 3}});
    return run(tried, noisy);
  }
  std::optional<std::vector<Choice>> run(const ExploreCase& tried, const Script& script) override {
    ++trials;
    if (tried.steps < needed.steps || tried.world_size < needed.world_size) return std::nullopt;
    for (const std::string& name : needed.parameters)
      if (std::find(tried.parameters.begin(), tried.parameters.end(), name) ==
          tried.parameters.end())
        return std::nullopt;
    for (const auto& one : decisions)
      if (std::find(script.begin(), script.end(), one) == script.end()) return std::nullopt;
    std::vector<Choice> choices(12, Choice{.count = 4});
    for (const auto& [at, taken] : script) choices[static_cast<size_t>(at)].taken = taken;
    return choices;
  }
  bool is_late() override { return trials >= most_trials; }
};

TEST(Shrink, KeepsOnlyWhatTheFailureNeeds) {
  FakeLab lab;
  const Shrunk shrunk = shrink(lab, {.steps = 5, .world_size = 6, .parameters = {"a", "b", "c"}},
                               {{1, 1}, {4, 1}, {8, 1}, {9, 2}});
  EXPECT_EQ(shrunk.smallest.steps, 2);
  EXPECT_EQ(shrunk.smallest.world_size, 3);
  EXPECT_THAT(shrunk.smallest.parameters, testing::ElementsAre("b"));
  EXPECT_EQ(shrunk.script, lab.decisions);
}

TEST(Shrink, AFailureOfTheUsualScheduleNeedsNoDecision) {
  FakeLab lab;
  lab.decisions.clear();
  lab.needed = {.steps = 1, .world_size = 2, .parameters = {}};
  const Script script = {{1, 1}, {2, 1}, {3, 1}};
  const Shrunk shrunk = shrink(lab, {.steps = 1, .world_size = 2, .parameters = {"a"}}, script);
  EXPECT_TRUE(shrunk.script.empty());
  EXPECT_THAT(shrunk.smallest.parameters, testing::ElementsAre("a"));  // one must be trained
}

TEST(Shrink, StopsWhenItIsLate) {
  FakeLab lab;
  lab.most_trials = 0;
  const Script script = {{4, 1}, {9, 2}, {10, 1}};
  const Shrunk shrunk = shrink(lab, {.steps = 5, .world_size = 6, .parameters = {"b"}}, script);
  EXPECT_EQ(shrunk.smallest.steps, 5);
  EXPECT_EQ(shrunk.script, script);
}

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
