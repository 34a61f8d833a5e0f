#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/base/part.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

const std::string kOwn = R"(/reducer={"kind": "registered", "name": "mine")";

std::string pointers_of(const Strings& sets) {
  const auto plan = plan_of(sets);
  std::string pointers;
  if (!plan)
    for (const InputError& error : plan.errors())
      pointers += (pointers.empty() ? "" : " ") + error.pointer;
  return pointers;
}

TEST(RegisteredCheck, AReducerOfOnesOwnHasANameAndOptions) {
  EXPECT_EQ(pointers_of({R"(/reducer={"kind": "registered"})"}), "/reducer/name");
  const auto plan = plan_of({kOwn + R"(, "options": {"chunks": 4, "how": "so", "on": true}})"});
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  const Options own = own_options(plan.value().scenario.reducer.options);
  EXPECT_EQ(own.integer("chunks"), 4);
  EXPECT_EQ(own.text("how"), "so");
  EXPECT_TRUE(own.flag("on"));
  EXPECT_EQ(own.all().size(), 3u);
  const auto json = as_json(plan.value());
  EXPECT_EQ(json["scenario"]["reducer"]["options"]["chunks"], 4);
  EXPECT_EQ(plan_from_json(json).scenario.reducer, plan.value().scenario.reducer);
}

TEST(RegisteredCheck, ShippedReducersHaveNeither) {
  EXPECT_EQ(pointers_of({R"(/reducer={"name": "mine"})"}), "/reducer/name");
  EXPECT_EQ(pointers_of({R"(/reducer={"same_bits_as": "flat"})"}), "/reducer/same_bits_as");
  EXPECT_EQ(pointers_of({R"(/reducer={"options": {"chunks": 4}})"}), "/reducer/options");
}

TEST(RegisteredCheck, TheReplayLaneFollowsTheClaim) {
  const Strings lanes = {R"(/lanes=["replica", "replay", "float64"])"};
  const auto claimed = plan_of({lanes[0], kOwn + R"(, "same_bits_as": "manual"})"});
  ASSERT_TRUE(claimed) << to_text(claimed.errors()[0]);
  EXPECT_TRUE(claimed.value().not_applicable.empty());
  EXPECT_EQ(claimed.value().replay.layout, "registration");
  EXPECT_EQ(claimed.value().replay.division_later, "divide_after");
  const auto flat = plan_of({lanes[0], kOwn + R"(, "same_bits_as": "flat"})"});
  EXPECT_EQ(flat.value().replay.layout, "one_bucket");
  const auto silent = plan_of({lanes[0], kOwn + "}"});
  ASSERT_TRUE(silent) << to_text(silent.errors()[0]);
  ASSERT_EQ(silent.value().not_applicable.size(), 1u);
  EXPECT_EQ(silent.value().not_applicable[0].first, Lane::replay);
  EXPECT_TRUE(silent.value().layout_at_construction.empty());
}

TEST(RegisteredCheck, RankZeroCannotScatterWhatOthersDoNotKnow) {
  const std::string data = R"(/data={"kind": "registered", "name": "mine", "samples": 20})";
  EXPECT_EQ(pointers_of({data, R"(/split={"kind": "manual"})"}), "/split/kind");
  EXPECT_EQ(pointers_of({data}), "");
}

}  // namespace

}  // namespace lockstep
