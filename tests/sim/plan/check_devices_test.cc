#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

const std::string kEmulated = R"(/compute={"kind": "emulated", "forward_ms": 10})";

RunPlan emulated(Strings sets) {
  sets.insert(sets.begin(), kEmulated);
  auto plan = plan_of(sets);
  EXPECT_TRUE(plan) << errors_of(sets);
  return plan.value();
}

std::string refusal(Strings sets) {
  sets.insert(sets.begin(), kEmulated);
  return errors_of(sets);
}

const std::string kSmallMlp =
    R"(/model={"kind": "mlp", "in_features": 3, "hidden": [4], "out_features": 2})";

TEST(EmulatedPlan, SaysWhenEachGradientIsReady) {
  const RunPlan plan = emulated({kSmallMlp, "/compute/backward_ms=20"});
  const nlohmann::ordered_json json = as_json(plan);
  EXPECT_EQ(json["layer_times"].dump(),
            R"([{"layer":"fc1","forward_ms":6.0,"backward_ms":12.0,"ready_ms":20.0},)"
            R"({"layer":"fc2","forward_ms":4.0,"backward_ms":8.0,"ready_ms":8.0}])");
  EXPECT_EQ(json["ready_ms"].dump(),
            R"({"fc1.weight":20.0,"fc1.bias":20.0,"fc2.weight":8.0,"fc2.bias":8.0})");
  EXPECT_EQ(plan_from_json(json).layer_times, plan.layer_times);
  EXPECT_EQ(as_json(emulated({kSmallMlp, R"(/frozen=["fc1"])"}))["ready_ms"].size(), 2U);
}

TEST(EmulatedPlan, RealComputeHasNoTimes) {
  const RunPlan plan = plan_of({}).value();
  EXPECT_TRUE(plan.layer_times.empty());
  EXPECT_EQ(as_json(plan)["ready_ms"].dump(), "{}");
}

TEST(EmulatedPlan, FollowsTheTimeScale) {
  const RunPlan plan = emulated({kSmallMlp, "/time_scale=0.5"});
  EXPECT_DOUBLE_EQ(plan.layer_times.front().ready_ms, 10);
}

TEST(EmulatedPlan, LongStepsGetLongerTimeouts) {
  const Timeouts times =
      emulated({kSmallMlp, "/compute/forward_ms=100000", "/steps=10"}).scenario.timeouts;
  EXPECT_EQ(times.step_ms, 720'000);
  EXPECT_EQ(times.run_ms, 6'001'000);
}

TEST(EmulatedPlan, LaneRoundingDoesNotApply) {
  const RunPlan plan = emulated({R"(/lanes=["rounding", "replay"])"});
  ASSERT_EQ(plan.not_applicable.size(), 1U);
  EXPECT_EQ(plan.not_applicable[0].second, "emulated gradients do not round as computed ones do");
  EXPECT_FALSE(plan.rounding);
}

TEST(CheckEmulated, RefusesWhatATimerCannotStandFor) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({R"(/model={"kind": "embedding", "vocabulary": 9, "sparse": true})",
                     R"(/data={"kind": "tokens", "samples": 24, "vocabulary": 9, "length": 4})",
                     R"(/loss={"kind": "cross_entropy"})"}),
            "/compute/kind: emulated gradients are dense, and the model has a sparse one; expected "
            "\"real\", or /model/sparse false");
  EXPECT_EQ(refusal({R"(/model={"kind": "batch_norm_mlp", "norm": "sync", "in_features": 3,
                        "hidden": [4], "out_features": 2})"}),
            "/compute/kind: norm sync asks all ranks in every layer, which no timer does; expected "
            "\"real\", or another /model/norm");
  EXPECT_EQ(refusal({R"(/model={"kind": "branches", "in_features": 3, "hidden": 4,
                        "out_features": 2, "unused": "always"})",
                     "/reducer/find_unused_parameters=true"}),
            "/compute/kind: emulated layers use all parameters; expected \"real\", or "
            "/model/unused \"none\"");
  EXPECT_EQ(refusal({R"(/model={"kind": "branches", "in_features": 3, "out_features": 2,
                        "first": "by_sample"})"}),
            "/compute/kind: emulated layers come in one order on all ranks; expected \"real\", or "
            "/model/first \"left\"");
  EXPECT_EQ(refusal({R"(/model={"kind": "mlp", "in_features": 3, "hidden": [4, 4],
                        "out_features": 2, "repeat": 2})"}),
            "/compute/kind: emulated layers are computed once in a forward; expected \"real\", or "
            "/model/repeat 1");
  EXPECT_EQ(refusal({"/reducer/kind=data_parallel", "/communicator/kind=local",
                     "/communicator/algorithm=rank_order"}),
            "/compute/kind: replicas that are threads of one rank have no timers of their own; "
            "expected \"real\", or another /reducer/kind");
  EXPECT_NE(refusal({R"(/lanes=["exact"])"}).find("lane exact judges arithmetic"),
            std::string::npos);
}

TEST(CheckEmulated, NeedsATimeOrAProfile) {
  EXPECT_EQ(errors_of({R"(/compute={"kind": "emulated"})"}),
            "/compute/forward_ms: missing key \"forward_ms\" in /compute of kind \"emulated\"");
  EXPECT_NE(errors_of({R"(/compute={"kind": "emulated", "profile": "no.profile"})"})
                .find("no.profile: error: cannot be opened"),
            std::string::npos);
}

}  // namespace

}  // namespace lockstep
