#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/plan/agreement.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

// Of kScenario's 24 samples on 4 ranks, in three batches.
Strings joined(const Strings& more = {}) {
  Strings sets = {"/batch_size=8", "/split/batches_per_rank=[1,3,2,3]", "/steps=3", "/join={}"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(Join, DividesByAllRanksUnlessAskedOtherwise) {
  const auto plan = plan_of(joined());
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  EXPECT_EQ(plan.value().scenario.join_divide_by, "initial_world_size");
  EXPECT_TRUE(plan.value().replay.joins);
  EXPECT_FALSE(plan.value().replay.divide_by_active);
  const auto other = plan_of(joined({"/join/divide_by=active_ranks"}));
  ASSERT_TRUE(other);
  EXPECT_TRUE(other.value().replay.divide_by_active);
  EXPECT_EQ(plan_from_json(as_json(other.value())).scenario.join_divide_by, "active_ranks");
}

TEST(Join, NeedsBatchesForEveryRankAndSamplesForThem) {
  EXPECT_EQ(errors_of(joined({"/split/batches_per_rank=[1,3,2]"})),
            "/split/batches_per_rank: /split/batches_per_rank has 3 numbers for 4 ranks; expected "
            "4 numbers");
  EXPECT_EQ(errors_of(joined({"/split/batches_per_rank=[1,3,2,4]", "/steps=4"})),
            "/split/batches_per_rank: /split/batches_per_rank asks for 4 batches of 8, but there "
            "are 24 samples; expected numbers up to 3");
}

TEST(Join, WhatItCannotGoWithIsRefused) {
  EXPECT_EQ(errors_of(joined({"/steps=4"})),
            "/steps: /steps is 4, but ranks join at the end of an epoch of 3 steps; expected a "
            "multiple of 3");
  EXPECT_EQ(errors_of(joined({"/reducer/kind=flat"})),
            "/join: reducer \"flat\" does not join; expected reducer bucketed or c10d");
  EXPECT_EQ(errors_of(joined({"/reducer/static_graph=true"})).substr(0, 22),
            "/reducer/static_graph:");
  EXPECT_EQ(errors_of(joined({"/comm_hook/kind=fp16"})), "");
  EXPECT_EQ(errors_of(joined({"/comm_hook/kind=fp16", "/join/divide_by=active_ranks"})),
            "/join/divide_by: comm hook \"fp16\" divides by all ranks itself; expected "
            "\"initial_world_size\"");
  EXPECT_EQ(errors_of(joined({"/comm_hook/kind=powersgd"})).substr(0, 16), "/comm_hook/kind:");
  EXPECT_EQ(errors_of(joined({R"(/mutants=[{"kind":"duplicate_shard"}])"})),
            "/mutants/0/kind: duplicate_shard cannot act here; expected equally many batches on "
            "all ranks");
}

TEST(Join, WhatTheOthersNeedInEveryStepIsRefused) {
  const auto pointer = [](const Strings& sets) {
    const std::string errors = errors_of(joined(sets));
    return errors.substr(0, errors.find(':'));
  };
  EXPECT_EQ(pointer({"/accumulate_steps=2", "/accumulate_sync=each"}), "/accumulate_sync");
  EXPECT_EQ(pointer({R"(/optimizer_sharding={"kind":"zero"})"}), "/optimizer_sharding/kind");
  EXPECT_EQ(
      pointer(
          {R"(/model={"kind":"batch_norm_mlp","in_features":4,"hidden":[6],"out_features":2,"norm":"sync"})"}),
      "/model/norm");
  EXPECT_EQ(pointer({"/data/workers=2"}), "");
}

TEST(Join, WithoutItARankStopsInTheFirstEpoch) {
  const Strings uneven = {"/batch_size=8", "/split/batches_per_rank=[1,3,2,3]", "/steps=6"};
  EXPECT_EQ(errors_of(uneven),
            "/steps: without join a rank with fewer batches stops in the first epoch, of 3 steps; "
            "expected at most 3, or join");
}

TEST(Join, WhatARankWithoutABatchMustHaveInCommon) {
  const auto plan = plan_of(joined({"/steps=6"}));
  ASSERT_TRUE(plan);
  const AgreementRule rule(plan.value().scenario);
  EXPECT_FALSE(rule.is_simple());
  EXPECT_EQ(rule.between_ranks(0, 0), Agreement::all);
  EXPECT_EQ(rule.between_ranks(1, 0), Agreement::all);
  EXPECT_EQ(rule.between_ranks(2, 0), Agreement::nothing);
  EXPECT_EQ(rule.between_ranks(3, 0), Agreement::parameters);
  EXPECT_EQ(rule.between_ranks(4, 0), Agreement::all);
  EXPECT_EQ(rule.most(3), Agreement::all);
  EXPECT_EQ(rule.last_step(0, Agreement::all), 4);
  EXPECT_EQ(rule.last_step(2, Agreement::all), 5);
  EXPECT_EQ(rule.last_step(0, Agreement::parameters), 6);
  EXPECT_TRUE(AgreementRule(Scenario{}).is_simple());
}

}  // namespace
}  // namespace lockstep
