#include <gtest/gtest.h>

#include "scenarios/image_files.h"
#include "sim/plan/plan.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using Strings = std::vector<std::string>;

// "pointer: message; expected allowed" of each error, of the file or of the plan.
std::string errors_of(const Strings& sets, std::string_view text = kScenario) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("f.json", text), {sets, {}});
  std::string all;
  const auto add = [&](const InputErrors& errors) {
    for (const InputError& error : errors)
      all += (all.empty() ? "" : "\n") + error.pointer + ": " + error.message +
             (error.allowed.empty() ? "" : "; expected " + error.allowed);
  };
  if (!file) {
    add(file.errors());
    return all;
  }
  const auto plan = make_plan(file.value().combinations[0].scenario);
  if (!plan) add(plan.errors());
  return all;
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
