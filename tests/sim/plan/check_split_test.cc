#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/image_files.h"
#include "scenarios/scenario.h"
#include "sim/plan/agreement.h"
#include "tests/scenarios/parse/temporary_file.h"
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

const char* kHook = R"(/comm_hook={"kind":"post_local_sgd","start_step":3})";
const char* kAveraging = R"(/model_averaging={"kind":"periodic","period":3,"warmup_steps":2})";

Strings of_8_steps(Strings sets) {
  sets.insert(sets.begin(), "/steps=8");
  return sets;
}
Expected<RunPlan> plan_of_8_steps(const Strings& sets) { return plan_of(of_8_steps(sets)); }
std::string errors_of_8_steps(const Strings& sets) { return errors_of(of_8_steps(sets)); }

TEST(LocalSteps, AreAveragedAsPyTorchDoes) {
  const auto plan = plan_of_8_steps({kHook, kAveraging});
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  const Scenario& scenario = plan.value().scenario;
  EXPECT_TRUE(has_own_states(scenario));
  std::string gradients, parameters;
  for (int64_t step = 1; step <= 8; ++step) {
    gradients += averages_gradients(scenario, step) ? "g" : "-";
    parameters += averages_parameters(scenario, step) ? "p" : "-";
  }
  EXPECT_EQ(gradients, "gg------");
  EXPECT_EQ(parameters, "--p--p--");
  EXPECT_FALSE(plan.value().shards);
  EXPECT_EQ(plan.value().replay.division_first_step, "divide_before");
  EXPECT_FALSE(has_own_states(plan_of_8_steps({}).value().scenario));
}

TEST(LocalSteps, ThePlanKnowsWhatRanksHaveInCommon) {
  const auto plan = plan_of_8_steps({kHook, kAveraging});
  ASSERT_TRUE(plan);
  const AgreementRule rule(plan.value().scenario);
  EXPECT_FALSE(rule.is_simple());
  EXPECT_EQ(rule.between_ranks(2, 1), Agreement::all);
  EXPECT_EQ(rule.between_ranks(3, 1), Agreement::parameters);
  EXPECT_EQ(rule.between_ranks(4, 1), Agreement::nothing);
  EXPECT_EQ(rule.with_replay(4, 1), Agreement::all);
  EXPECT_EQ(rule.last_step(1, Agreement::parameters), 6);
  EXPECT_EQ(rule.last_step(1, Agreement::all), 2);
  EXPECT_EQ(plan.value().agreement,
            "ranks and one device: everything up to step 2, later parameters alone, when they are "
            "averaged: after step 3 and every 3 steps from there. Each rank and its own replay: "
            "everything");
  EXPECT_EQ(plan_from_json(as_json(plan.value())).agreement, plan.value().agreement);
}

// A mistake of the user's own: then nothing may differ, and the lanes say that it does.
TEST(LocalSteps, WithoutAnAverageNothingIsForgiven) {
  const auto plan = plan_of_8_steps({kHook});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(AgreementRule(plan.value().scenario).is_simple());
  EXPECT_TRUE(has_own_states(plan.value().scenario));
  EXPECT_EQ(plan.value().agreement, "");
}

TEST(LocalSteps, WhatTheyCannotGoWithIsRefused) {
  EXPECT_EQ(errors_of_8_steps({kHook, R"(/model_averaging={"kind":"periodic","warmup_steps":8})"}),
            "/model_averaging/warmup_steps: /model_averaging/warmup_steps is 8: no step of 8 is "
            "averaged; expected less than 8");
  const Strings each = {kHook, "/batch_size=24", "/accumulate_steps=2", "/accumulate_sync=each"};
  EXPECT_EQ(errors_of_8_steps(each),
            "/accumulate_sync: a hook counts the backward passes that it averages, several a step, "
            "and start_step is a step; expected \"last\"");
  EXPECT_EQ(errors_of_8_steps({kHook, "/reducer/find_unused_parameters=true"}).substr(0, 33),
            "/reducer/find_unused_parameters: ");
  EXPECT_EQ(
      errors_of_8_steps({kHook, "/reducer/kind=flat"}),
      "/comm_hook/kind: reducer \"flat\" has no comm hooks; expected reducer bucketed or c10d");
  EXPECT_EQ(
      errors_of_8_steps({kAveraging, R"(/checkpoint={"kind":"save_and_resume","after_step":2})"}),
      "/checkpoint: a checkpoint holds the state of one rank; expected no checkpoint, or "
      "ranks that do not part");
}

TEST(LocalSteps, LaneRoundingDoesNotApply) {
  const auto plan = plan_of_8_steps({kHook, kAveraging, R"(/lanes=["replica","rounding"])"});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan.value().not_applicable.size(), 1U);
  EXPECT_EQ(plan.value().not_applicable[0].first, Lane::rounding);
}

constexpr const char* kSampler = R"(/split={"kind":"distributed"})";

TEST(Samples, WhatAWorldSizeDoesNotDivide) {
  const std::string uneven = "/world_size=5";
  EXPECT_EQ(errors_of({uneven}),
            "/world_size: a batch of 24 samples cannot be split evenly over 5 ranks; expected a "
            "world size that divides the batch");
  EXPECT_EQ(errors_of({uneven, "/averaging=sample_weighted"}), "");
  EXPECT_EQ(errors_of({uneven, "/split/remainder=pad"}), "");
  EXPECT_EQ(errors_of({uneven, "/split/remainder=drop"}), "");
  EXPECT_EQ(errors_of({uneven, kSampler}),
            "/world_size: a batch of 24 samples is no batch of the same size on each of 5 ranks; "
            "expected a world size that divides the batch");
  EXPECT_EQ(errors_of({"/world_size=25", "/averaging=sample_weighted"}),
            "/world_size: 24 samples leave none for some of 25 ranks; expected a sample for every "
            "rank");
  EXPECT_EQ(errors_of({"/world_size=25", "/split/remainder=drop"}).substr(0, 30),
            "/world_size: 24 samples leave ");
  EXPECT_EQ(errors_of({"/world_size=25", "/split/remainder=pad"}), "");
  EXPECT_EQ(errors_of({"/split/seed=1"}).substr(0, 58),
            "/split/seed: unknown key \"seed\" in /split; expected \"kind\"");
}

TEST(Samples, SamplersNeedNoWholeBatchesButASampleForEachRank) {
  EXPECT_EQ(errors_of({kSampler, "/data/samples=23", "/batch_size=8"}), "");
  EXPECT_EQ(errors_of({R"(/split={"kind":"distributed","drop_last":true})", "/data/samples=3",
                       "/batch_size=8"}),
            "/world_size: 3 samples leave none for some of 4 ranks; expected a sample for every "
            "rank");
  EXPECT_EQ(errors_of({kSampler, "/data/samples=200000000", "/batch_size=8"}),
            "/data/samples: no sampler of ours shuffles so many samples; expected at most "
            "100000000");
}

TEST(Samples, MicroBatchesOfEveryShardAreEqual) {
  EXPECT_EQ(errors_of({"/accumulate_steps=3"}), "");
  EXPECT_EQ(errors_of({"/accumulate_steps=4"}),
            "/accumulate_steps: a rank's 6 samples cannot be split into 4 equal micro-batches; "
            "expected a divisor of 6");
  // 26 samples on 4 ranks: 7 rows, 4 and then 3.
  EXPECT_EQ(errors_of({kSampler, "/data/samples=26", "/batch_size=16", "/accumulate_steps=2"}),
            "/accumulate_steps: a rank's 3 samples cannot be split into 2 equal micro-batches; "
            "expected a divisor of 3");
}

TEST(Samples, MutantsThatCouldNotShowAreRefused) {
  const auto mutant = [](const std::string& kind) {
    return "/mutants=[{\"kind\":\"" + kind + "\"}]";
  };
  EXPECT_EQ(errors_of({mutant("plain_average")}),
            "/mutants/0/kind: plain_average cannot act here; expected averaging sample_weighted "
            "over shards of different sizes");
  EXPECT_EQ(errors_of({mutant("plain_average"), "/averaging=sample_weighted", "/world_size=5"}),
            "");
  EXPECT_EQ(errors_of({mutant("no_set_epoch"), kSampler, "/batch_size=8"}),
            "/mutants/0/kind: no_set_epoch cannot act here; expected a sampler that shuffles each "
            "epoch, and two epochs");
  EXPECT_EQ(errors_of({mutant("no_set_epoch"), kSampler}), "");
  const std::string unordered =
      "/mutants/0/kind: unordered_delivery cannot act here; expected several batches, and "
      "data.workers of 2 or more";
  EXPECT_EQ(errors_of({mutant("unordered_delivery"), "/data/workers=4"}), unordered);
  EXPECT_EQ(errors_of({mutant("unordered_delivery"), "/batch_size=8", "/data/workers=1"}),
            unordered);
  EXPECT_EQ(errors_of({mutant("unordered_delivery"), "/batch_size=8", "/data/workers=2"}), "");
  EXPECT_EQ(errors_of({mutant("no_shuffle")}),
            "/mutants/0/kind: no_shuffle cannot act here; expected a distributed split that "
            "shuffles");
  EXPECT_EQ(errors_of({mutant("no_shuffle"), kSampler}), "");
}

TEST(Samples, ABatchIsDividedByTheRanksOfWholeNodes) {
  const auto per_node = [](int64_t ranks, Strings more = {}) {
    more.insert(more.begin(), {R"(/mutants=[{"kind":"batch_per_node"}])",
                               "/split/ranks_per_node=" + std::to_string(ranks)});
    return errors_of(more);
  };
  EXPECT_EQ(per_node(2, {"/batch_size=8", "/data/samples=48"}), "");
  EXPECT_EQ(per_node(4, {"/batch_size=8"}), "");  // one node: right
  const std::string no_nodes =
      "/mutants/0/kind: batch_per_node without whole nodes; expected a split.ranks_per_node that "
      "divides 4";
  EXPECT_EQ(per_node(3), no_nodes);
  EXPECT_EQ(errors_of({R"(/mutants=[{"kind":"batch_per_node"}])"}), no_nodes);
  EXPECT_EQ(per_node(2),
            "/mutants/0/kind: ranks that take batches of 48 samples need whole ones; expected a "
            "data.samples that is a multiple of 48");
  EXPECT_EQ(per_node(2, {"/split/kind=manual", "/data/samples=48", "/batch_size=8"}),
            "/mutants/0/kind: batch_per_node cannot act here; expected another split than manual, "
            "and a batch that ranks_per_node divides");
}

const std::string kImages = changed(R"({"kind": "linear", "in_features": 3, "out_features": 2})",
                                    R"({"kind": "mnist_convnet"})");

Strings images(const std::string& path, const Strings& more = {}) {
  Strings sets = {R"(/loss={"kind":"cross_entropy"})", R"(/data={"kind":"mnist"})"};
  if (!path.empty()) sets.push_back("/data/path=" + path);
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(Samples, FilesAreLookedAtBeforeAnythingRuns) {
  const TemporaryFolder folder;
  EXPECT_EQ(errors_of(images("none"), kImages).substr(0, 12), "/data/path: ");
  ASSERT_TRUE(write_images("mnist", folder.path(), 22, 0));
  EXPECT_EQ(errors_of(images(folder.path(), {kSampler, "/batch_size=8"}), kImages), "");
  EXPECT_EQ(errors_of(images(folder.path(), {"/data/samples=24"}), kImages),
            "/data/samples: /data/samples is 24, but the files of /data/path hold 22; expected at "
            "most 22");
  EXPECT_EQ(errors_of(images("", {"/data/samples=24", "/data/std=[1,2]"}), kImages),
            "/data/std: /data/std has 2 numbers, but \"mnist\" has images of 1 channel; expected 1 "
            "number");
}

TEST(Samples, FilesWithoutANumberOfSamplesAreReadWhole) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_images("mnist", folder.path(), 22, 0));
  const auto file = load_scenario_file(folder.write("f.json", kImages),
                                       {images(".", {kSampler, "/batch_size=8"}), {}});
  ASSERT_TRUE(file) << to_text(file.errors()[0]);
  const Scenario& s = file.value().combinations[0].scenario;
  EXPECT_EQ(s.data.options.integer("samples"), 22);
  EXPECT_EQ(s.batch_size, 8);
  EXPECT_EQ(s.data.options.text("path"), folder.path());
}

}  // namespace

}  // namespace lockstep
