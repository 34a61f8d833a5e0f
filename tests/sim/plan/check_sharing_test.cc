#include <gtest/gtest.h>

#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

const std::string kZero = R"(/optimizer_sharding={"kind": "zero"})";
const std::string kSharded = "/reducer/kind=sharded";
const Strings kDataParallel = {"/reducer/kind=data_parallel",
                               R"(/communicator={"kind": "local", "algorithm": "rank_order"})"};

Strings with(Strings sets, const std::string& one) {
  sets.push_back(one);
  return sets;
}

// The plan, or the pointers of all errors.
struct Planned {
  RunPlan plan;
  std::string errors;
};
Planned planned(const Strings& sets) {
  const auto plan = plan_of(sets);
  if (plan) return {plan.value(), ""};
  Planned result;
  for (const InputError& e : plan.errors())
    result.errors += (result.errors.empty() ? "" : " ") + e.pointer;
  return result;
}

TEST(SharingCheck, ZeroNeedsAveragedGradientsOnAllRanks) {
  for (const std::string kind : {"bucketed", "c10d", "flat", "per_parameter", "manual"})
    EXPECT_EQ(planned({kZero, "/reducer/kind=" + kind}).errors, "") << kind;
  EXPECT_EQ(planned({kZero, kSharded}).errors, "/optimizer_sharding/kind");
  EXPECT_EQ(planned(with(kDataParallel, kZero)).errors, "/optimizer_sharding/kind");
  const std::string adagrad = R"(/optimizer={"kind": "adagrad", "lr": 0.1})";
  EXPECT_EQ(planned({kZero, adagrad}).errors, "");
  EXPECT_EQ(planned({kZero, adagrad, R"(/frozen=["bias"])"}).errors, "/frozen");
}

TEST(SharingCheck, ShardedRefusesWhatNeedsAllGradients) {
  EXPECT_EQ(planned({kSharded, R"(/clipping={"kind": "value", "max_value": 1})"}).errors, "");
  EXPECT_EQ(planned({kSharded, R"(/clipping={"kind": "norm", "max_norm": 1})"}).errors,
            "/clipping/kind");
  EXPECT_EQ(planned({kSharded, R"(/loss_scaling={"kind": "dynamic"})"}).errors,
            "/loss_scaling/kind");
  EXPECT_EQ(planned({kSharded, R"(/comm_hook={"kind": "allreduce"})"}).errors, "/comm_hook/kind");
  EXPECT_EQ(planned({kSharded, "/accumulate_steps=2", "/accumulate_sync=each"}).errors,
            "/accumulate_sync");
}

TEST(SharingCheck, DataParallelIsOneProcess) {
  EXPECT_EQ(planned(kDataParallel).errors, "");
  EXPECT_EQ(planned({"/reducer/kind=data_parallel"}).errors,
            "/communicator/kind /communicator/algorithm");
  EXPECT_EQ(planned(with(kDataParallel, R"(/split={"kind": "manual"})")).errors, "/split/kind");
}

TEST(SharingCheck, MutantsMustBeAbleToAct) {
  const std::string drop = R"(/mutants=[{"kind": "drop_weights", "rank": 1}])";
  EXPECT_EQ(planned({drop}).errors, "/mutants/0/kind");
  EXPECT_EQ(planned({drop, kZero}).errors, "");
  EXPECT_EQ(planned({drop, kSharded}).errors, "");
  EXPECT_EQ(planned(with(kDataParallel, R"(/mutants=[{"kind": "drop_bucket"}])")).errors,
            "/mutants/0/kind");
  EXPECT_EQ(planned(with(kDataParallel, R"(/mutants=[{"kind": "wrong_divisor"}])")).errors, "");
}

TEST(SharingPlan, HowEachWayIsReplayed) {
  const RunPlan sharded = planned({kSharded}).plan;
  EXPECT_TRUE(sharded.replay.padded);
  EXPECT_FALSE(sharded.replay.rebuild);
  EXPECT_EQ(sharded.replay.division_later, "divide_before");
  const RunPlan parallel = planned(kDataParallel).plan;
  EXPECT_TRUE(parallel.replay.gathered);
  EXPECT_EQ(parallel.replay.division_first_step, "none");
  EXPECT_FALSE(parallel.shards);
  EXPECT_EQ(ranks_of(parallel.scenario), 1);
  EXPECT_EQ(ranks_of(sharded.scenario), 4);
  ASSERT_EQ(parallel.not_applicable.size(), 1U);
  EXPECT_EQ(parallel.not_applicable[0].first, "replica");
}

TEST(SharingPlan, ShardedBucketsAreClosedByTheCapsAtOnce) {
  const Strings small = {kSharded, "/reducer/bucket_cap_mb=0.00001",
                         "/reducer/first_bucket_mb=0.00001"};
  EXPECT_EQ(planned(small).plan.layout_at_construction, (BucketLayout{{1}, {0}}));
  EXPECT_EQ(planned({kSharded}).plan.layout_at_construction, (BucketLayout{{0, 1}}));
}

}  // namespace
}  // namespace lockstep
