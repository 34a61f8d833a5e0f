// What the plan makes of comm hooks and static graphs.
#include <gtest/gtest.h>

#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string first_error(const Strings& sets) {
  const auto plan = plan_of(sets);
  if (plan) return "";
  return plan.errors()[0].pointer + ": " + plan.errors()[0].message + "; expected " +
         plan.errors()[0].allowed;
}

RunPlan plan_with(const std::string& hook, const Strings& more = {}) {
  Strings sets{"/lanes=[\"replica\",\"replay\",\"float64\",\"rounding\"]", "/comm_hook=" + hook};
  sets.insert(sets.end(), more.begin(), more.end());
  const auto plan = plan_of(sets);
  EXPECT_TRUE(plan) << hook;
  return plan ? plan.value() : RunPlan{};
}

Strings refused(const RunPlan& plan) {
  Strings lanes;
  for (const auto& [lane, reason] : plan.not_applicable) lanes.emplace_back(to_word(lane));
  return lanes;
}

TEST(CommHookPlan, EveryHookDeclaresItsLanes) {
  const RunPlan whole = plan_with(R"({"kind": "allreduce"})");
  EXPECT_EQ(refused(whole), Strings{});
  EXPECT_EQ(whole.goldens, (Strings{"replay", "float64"}));
  const RunPlan half = plan_with(R"({"kind": "fp16"})");
  ASSERT_EQ(half.not_applicable.size(), 1U);
  EXPECT_EQ(half.not_applicable[0].first, Lane::float64);
  EXPECT_EQ(half.not_applicable[0].second,
            "comm hook fp16 rounds gradients to half precision on purpose");
  EXPECT_EQ(half.goldens, Strings{"replay"});
  EXPECT_TRUE(half.rounding);
  EXPECT_FALSE(half.double_run);
  const RunPlan low_rank = plan_with(R"({"kind": "powersgd"})");
  EXPECT_EQ(refused(low_rank), Strings{"rounding"});
  EXPECT_EQ(low_rank.goldens, (Strings{"replay", "float64"}));
  EXPECT_FALSE(low_rank.rounding);
  EXPECT_EQ(refused(plan_with(R"({"kind": "powersgd", "start_step": 4})")), Strings{});
  EXPECT_EQ(refused(plan_with(R"({"kind": "registered", "name": "mine"})")),
            (Strings{"replay", "rounding"}));
}

TEST(CommHookPlan, AStatedBoundIsJudgedByLaneCommunication) {
  const Strings lanes{R"(/lanes=["replica","replay","float64","communication"])"};
  const RunPlan unstated = plan_with(R"({"kind": "powersgd"})", lanes);
  EXPECT_EQ(refused(unstated), Strings{"communication"});
  EXPECT_EQ(unstated.not_applicable[0].second,
            "PowerSGD loses a part of a gradient on purpose: /comm_hook/error or /comm_hook/owed "
            "can say how much it may lose");
  for (const char* hook :
       {R"({"kind": "fp16", "error": 0.01})", R"({"kind": "powersgd", "owed": 3})"}) {
    const RunPlan stated = plan_with(hook, lanes);
    EXPECT_EQ(refused(stated), Strings{"float64"}) << hook;
    EXPECT_TRUE(stated.communication) << hook;
    EXPECT_FALSE(stated.double_run) << hook;
  }
  EXPECT_EQ(refused(plan_with(R"({"kind": "registered", "name": "mine", "error": 0.1})", lanes)),
            (Strings{"replay", "float64"}));
  EXPECT_EQ(first_error({R"(/comm_hook={"kind": "fp16", "error": 0.01})"}),
            "/comm_hook/error: only lane communication judges what a comm hook loses; expected "
            "lane \"communication\" among /lanes");
}

TEST(CommHookPlan, ReplayRuleOfEachHook) {
  for (const char* kind : {"bucketed", "c10d"}) {
    const Strings reducer{std::string("/reducer/kind=") + kind,
                          "/reducer/gradient_as_bucket_view=true"};
    const auto rule = [&](const std::string& hook) {
      const ReplayRule r = plan_with(R"({"kind": ")" + hook + "\"}", reducer).replay;
      return Strings{r.division_first_step, r.division_later, r.added_as};
    };
    EXPECT_EQ(rule("none"), (Strings{"multiply_before", "divide_before", ""}));
    EXPECT_EQ(rule("allreduce"), (Strings{"divide_before", "divide_before", ""}));
    EXPECT_EQ(rule("fp16"), (Strings{"divide_before", "divide_before", "float16"}));
    EXPECT_EQ(rule("bf16"), (Strings{"divide_before", "divide_before", "bfloat16"}));
  }
}

TEST(CommHookPlan, LibTorchLaysOutAStaticGraphAStepLater) {
  const Strings graph{"/reducer/static_graph=true"};
  EXPECT_EQ(plan_with(R"({"kind": "none"})", graph).replay.rebuild_after_step, 1);
  EXPECT_EQ(
      plan_with(R"({"kind": "none"})", {graph[0], "/reducer/kind=c10d"}).replay.rebuild_after_step,
      2);
}

TEST(CommHookPlan, BadInput) {
  EXPECT_EQ(
      first_error({"/comm_hook={\"kind\": \"fp16\"}", "/reducer/kind=flat"}),
      "/comm_hook/kind: reducer \"flat\" has no comm hooks; expected reducer bucketed or c10d");
  EXPECT_NE(first_error({"/comm_hook={\"kind\": \"registered\"}"}).find("/comm_hook"),
            std::string::npos);
  EXPECT_NE(first_error({"/comm_hook={\"kind\": \"fp16\", \"rank\": 2}"}).find("/comm_hook/rank"),
            std::string::npos);
  EXPECT_NE(first_error({"/comm_hook={\"kind\": \"powersgd\", \"start_step\": 1}"})
                .find("/comm_hook/start_step"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
