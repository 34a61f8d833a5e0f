#include <gtest/gtest.h>

#include "tests/scenarios/parse/temporary_file.h"
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
struct PlanOrPointers {
  RunPlan plan;
  std::string errors;
};
PlanOrPointers plan_or_pointers(const Strings& sets) {
  const auto plan = plan_of(sets);
  if (plan) return {plan.value(), ""};
  PlanOrPointers result;
  for (const InputError& e : plan.errors())
    result.errors += (result.errors.empty() ? "" : " ") + e.pointer;
  return result;
}

TEST(SharingCheck, ZeroNeedsAveragedGradientsOnAllRanks) {
  for (const std::string kind : {"bucketed", "c10d", "flat", "per_parameter", "manual"})
    EXPECT_EQ(plan_or_pointers({kZero, "/reducer/kind=" + kind}).errors, "") << kind;
  EXPECT_EQ(plan_or_pointers({kZero, kSharded}).errors, "/optimizer_sharding/kind");
  EXPECT_EQ(plan_or_pointers(with(kDataParallel, kZero)).errors, "/optimizer_sharding/kind");
  const std::string adagrad = R"(/optimizer={"kind": "adagrad", "lr": 0.1})";
  EXPECT_EQ(plan_or_pointers({kZero, adagrad}).errors, "");
  EXPECT_EQ(plan_or_pointers({kZero, adagrad, R"(/frozen=["bias"])"}).errors, "/frozen");
}

TEST(SharingCheck, ShardedRefusesWhatNeedsAllGradients) {
  EXPECT_EQ(plan_or_pointers({kSharded, R"(/clipping={"kind": "value", "max_value": 1})"}).errors,
            "");
  EXPECT_EQ(plan_or_pointers({kSharded, R"(/clipping={"kind": "norm", "max_norm": 1})"}).errors,
            "/clipping/kind");
  EXPECT_EQ(plan_or_pointers({kSharded, R"(/loss_scaling={"kind": "dynamic"})"}).errors,
            "/loss_scaling/kind");
  EXPECT_EQ(plan_or_pointers({kSharded, R"(/comm_hook={"kind": "allreduce"})"}).errors,
            "/comm_hook/kind");
  EXPECT_EQ(plan_or_pointers({kSharded, "/accumulate_steps=2", "/accumulate_sync=each"}).errors,
            "/accumulate_sync");
}

TEST(SharingCheck, DataParallelIsOneProcess) {
  EXPECT_EQ(plan_or_pointers(kDataParallel).errors, "");
  EXPECT_EQ(plan_or_pointers({"/reducer/kind=data_parallel"}).errors,
            "/communicator/kind /communicator/algorithm");
  EXPECT_EQ(plan_or_pointers(with(kDataParallel, R"(/split={"kind": "manual"})")).errors,
            "/split/kind");
}

TEST(SharingCheck, MutantsMustBeAbleToAct) {
  const std::string drop = R"(/mutants=[{"kind": "drop_weights", "rank": 1}])";
  EXPECT_EQ(plan_or_pointers({drop}).errors, "/mutants/0/kind");
  EXPECT_EQ(plan_or_pointers({drop, kZero}).errors, "");
  EXPECT_EQ(plan_or_pointers({drop, kSharded}).errors, "");
  EXPECT_EQ(plan_or_pointers(with(kDataParallel, R"(/mutants=[{"kind": "drop_bucket"}])")).errors,
            "/mutants/0/kind");
  EXPECT_EQ(plan_or_pointers(with(kDataParallel, R"(/mutants=[{"kind": "wrong_divisor"}])")).errors,
            "");
}

TEST(SharingPlan, HowEachWayIsReplayed) {
  const RunPlan sharded = plan_or_pointers({kSharded}).plan;
  EXPECT_TRUE(sharded.replay.padded);
  EXPECT_FALSE(sharded.replay.rebuild);
  EXPECT_EQ(sharded.replay.division_later, "divide_before");
  const RunPlan parallel = plan_or_pointers(kDataParallel).plan;
  EXPECT_TRUE(parallel.replay.gathered);
  EXPECT_EQ(parallel.replay.division_first_step, "none");
  EXPECT_FALSE(parallel.shards);
  EXPECT_EQ(ranks_of(parallel.scenario), 1);
  EXPECT_EQ(ranks_of(sharded.scenario), 4);
  ASSERT_EQ(parallel.not_applicable.size(), 1U);
  EXPECT_EQ(parallel.not_applicable[0].first, Lane::replica);
}

TEST(SharingPlan, ShardedBucketsAreClosedByTheCapsAtOnce) {
  const Strings small = {kSharded, "/reducer/bucket_cap_mb=0.00001",
                         "/reducer/first_bucket_mb=0.00001"};
  EXPECT_EQ(plan_or_pointers(small).plan.layout_at_construction, (BucketLayout{{1}, {0}}));
  EXPECT_EQ(plan_or_pointers({kSharded}).plan.layout_at_construction, (BucketLayout{{0, 1}}));
}

const std::string kScaling = R"(/loss_scaling={"kind": "dynamic"})";

TEST(TrainingCheck, EveryKindHasDefaults) {
  for (const std::string optimizer : {"adam", "adamw", "adagrad", "rmsprop"})
    EXPECT_EQ(allowed_of({R"(/optimizer={"kind": ")" + optimizer + "\"}"}), "") << optimizer;
  const Scenario s = planned({R"(/lr_schedule={"kind": "cosine", "steps_total": 9})",
                              R"(/clipping={"kind": "norm", "max_norm": 1})", kScaling})
                         .scenario;
  EXPECT_EQ(s.lr_schedule.options.number("min_lr"), 0);
  EXPECT_EQ(s.clipping.options.text("norm_type"), "l2");
  EXPECT_EQ(s.loss_scaling.options.number("initial_scale"), 65536);
  EXPECT_EQ(s.loss_scaling.options.integer("growth_interval"), 2000);
  EXPECT_EQ(s.loss_scaling.options.integer("overflow_step"), 0);
}

TEST(TrainingCheck, OptionsOfAnotherKindAreRefused) {
  const auto at = [](const std::string& set) {
    const std::string errors = allowed_of({set});
    return errors.substr(0, errors.find(':'));
  };
  EXPECT_EQ(at(R"(/optimizer={"kind": "adagrad", "momentum": 0.9})"), "/optimizer/momentum");
  EXPECT_EQ(at(R"(/lr_schedule={"kind": "none", "gamma": 0.9})"), "/lr_schedule/gamma");
  EXPECT_EQ(at(R"(/clipping={"kind": "value", "max_value": 1, "max_norm": 1})"),
            "/clipping/max_norm");
  EXPECT_EQ(at(R"(/lr_schedule={"kind": "step"})").find("/lr_schedule"), 0U);
}

TEST(TrainingCheck, ScalesArePowersOfTwo) {
  EXPECT_EQ(allowed_of({kScaling, "/loss_scaling/initial_scale=1000"}),
            "/loss_scaling/initial_scale: a power of two");
  EXPECT_EQ(allowed_of({kScaling, "/loss_scaling/growth_factor=3"}),
            "/loss_scaling/growth_factor: a power of two");
  EXPECT_EQ(allowed_of({kScaling, "/loss_scaling/backoff_factor=1"}),
            "/loss_scaling/backoff_factor: a power of two below 1");
  EXPECT_EQ(allowed_of({kScaling, "/steps=4", "/loss_scaling/overflow_step=5"}),
            "/loss_scaling/overflow_step: a step up to 4, or 0");
  EXPECT_EQ(allowed_of({kScaling, "/world_size=4", "/loss_scaling/overflow_rank=4"}),
            "/loss_scaling/overflow_rank: a rank from 0 to 3");
}

TEST(TrainingCheck, LowestLearningRateIsNotTheHighest) {
  EXPECT_EQ(allowed_of({R"(/optimizer={"kind": "sgd", "lr": 0.1})",
                        R"(/lr_schedule={"kind": "cosine", "steps_total": 9, "min_lr": 0.5})"}),
            "/lr_schedule/min_lr: at most 0.1");
}

TEST(TrainingCheck, MutantsNeedWhatTheyBreak) {
  const std::string at = "/mutants/0/kind: ";
  const auto with = [](const std::string& kind) {
    return R"(/mutants=[{"kind": ")" + kind + "\"}]";
  };
  EXPECT_EQ(allowed_of({with("clip_before_sum")}), at + "a clipping of kind norm or value");
  const std::string norm = R"(/clipping={"kind": "norm", "max_norm": 1})";
  EXPECT_EQ(allowed_of({with("clip_before_sum"), norm}),
            at + "reducer manual, or a clipping of kind value");
  EXPECT_EQ(allowed_of({with("clip_before_sum"), norm, "/reducer/kind=manual"}), "");
  EXPECT_EQ(allowed_of({with("local_skip")}), at + "a loss_scaling of kind dynamic");
  EXPECT_EQ(allowed_of({with("stale_momentum"), R"(/optimizer={"kind": "sgd", "lr": 0.1})"}),
            at + "a momentum > 0, or another optimizer");
  EXPECT_EQ(allowed_of({with("wrong_lr")}), "");
}

TEST(TrainingCheck, RoundingKnowsNoClippedGradients) {
  const std::string lanes = R"(/lanes=["rounding", "replica"])";
  EXPECT_TRUE(planned({lanes}).rounding);
  for (const std::string& set :
       {std::string(R"(/clipping={"kind": "value", "max_value": 1})"), kScaling}) {
    const RunPlan plan = planned({lanes, set});
    EXPECT_FALSE(plan.rounding);
    ASSERT_EQ(plan.not_applicable.size(), 1U);
    EXPECT_EQ(plan.not_applicable[0].first, Lane::rounding);
  }
}

}  // namespace

}  // namespace lockstep
