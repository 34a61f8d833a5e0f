#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "sim/cli/select.h"
#include "sim/plan/plans.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

std::vector<SelectedFile> files(int64_t runs_each) {
  std::vector<SelectedFile> all;
  for (const char* name : {"a", "b"}) {
    SelectedFile file;
    file.path = file.name = name;
    for (int64_t i = 0; i < runs_each; ++i) {
      RunPlan plan;
      plan.file = testing::TempDir() + name;
      plan.scenario.name = name;
      plan.set = {{"/world_size", std::to_string(i % 5)}, {"/seed", std::to_string(i / 5)}};
      file.plans.push_back(plan);
    }
    all.push_back(std::move(file));
  }
  return all;
}

std::multiset<std::string> names_of(const std::vector<SelectedFile>& all) {
  std::multiset<std::string> names;
  for (const SelectedFile& file : all)
    for (const RunPlan& plan : file.plans) names.insert(plan.scenario.name + label_of(plan.set));
  return names;
}

TEST(Shards, AreEverythingExactlyOnce) {
  for (const int64_t runs : {0, 1, 7, 50})
    for (const int64_t count : {1, 2, 3, 7, 64}) {
      std::multiset<std::string> seen;
      size_t least = SIZE_MAX, most = 0;
      for (int64_t index = 1; index <= count; ++index) {
        auto part = files(runs);
        keep_shard({index, count}, &part);
        const auto names = names_of(part);
        seen.insert(names.begin(), names.end());
        least = std::min(least, names.size());
        most = std::max(most, names.size());
      }
      EXPECT_EQ(seen, names_of(files(runs)));
      EXPECT_LE(most - least, 1u);
    }
}

TEST(Shards, DoNotFollowAnAxis) {
  auto part = files(50);
  keep_shard({1, 5}, &part);  // as many as the values of an axis
  std::set<std::string> sizes;
  for (const SelectedFile& file : part)
    for (const RunPlan& plan : file.plans) sizes.insert(plan.set[0].second);
  EXPECT_EQ(sizes.size(), 5u);
}

TEST(Shards, AreTheSameInWhicheverOrderFilesAreNamed) {
  auto one = files(7), other = files(7);
  std::swap(other[0], other[1]);
  keep_shard({2, 3}, &one);
  keep_shard({2, 3}, &other);
  EXPECT_EQ(names_of(one), names_of(other));
}

TEST(Shards, AreWrittenAsAPartOfAWhole) {
  EXPECT_EQ(parse_shard("2/5").value().index, 2);
  EXPECT_EQ(parse_shard("2/5").value().count, 5);
  for (const char* bad :
       {"", "2", "0/5", "6/5", "2/5000", "a/b", "2/5x", "-1/5", "1/", "/2", "1 /2"})
    EXPECT_FALSE(parse_shard(bad)) << bad;
}

Shard launched(const Variables& variables) {
  const auto shard = launched_shard(variables);
  return shard ? shard.value() : Shard{0, 0};
}

TEST(Shards, AreWhatTheLauncherSays) {
  const Variables tasks = {{"SLURM_JOB_ID", "9"},  {"SLURM_STEP_ID", "0"},
                           {"SLURM_PROCID", "2"},  {"SLURM_NTASKS", "4"},
                           {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "2"},
                           {"SLURM_NNODES", "4"},  {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_EQ(launched(tasks).index, 3);
  EXPECT_EQ(launched(tasks).count, 4);
  Variables array = {{"SLURM_ARRAY_TASK_ID", "14"},
                     {"SLURM_ARRAY_TASK_MIN", "10"},
                     {"SLURM_ARRAY_TASK_COUNT", "5"},
                     {"SLURM_ARRAY_TASK_STEP", "2"}};
  EXPECT_EQ(launched(array).index, 3);
  EXPECT_EQ(launched(array).count, 5);
  array.insert(tasks.begin(), tasks.end());  // tasks of each of an array
  EXPECT_EQ(launched(array).index, 11);
  EXPECT_EQ(launched(array).count, 20);
}

TEST(Shards, OfNoLauncherAreNotTheWhole) {
  EXPECT_FALSE(launched_shard({}));
  EXPECT_FALSE(launched_shard({{"SLURM_ARRAY_TASK_ID", "9"},  // 0,9 of two: a gap
                               {"SLURM_ARRAY_TASK_MIN", "0"},
                               {"SLURM_ARRAY_TASK_COUNT", "2"}}));
}

class LastFailed : public testing::Test {
 protected:
  LastFailed() {
    std::filesystem::create_directory(folder_);
    setenv("XDG_STATE_HOME", folder_.c_str(), 1);
    for (const char* name : {"a", "b"}) std::ofstream(testing::TempDir() + name) << "{}";
  }
  ~LastFailed() override {
    unsetenv("XDG_STATE_HOME");
    std::filesystem::remove_all(folder_);
  }
  static RunResult result(const RunPlan& plan, std::optional<bool> met) {
    RunResult run;
    run.file = plan.file;
    run.name = plan.scenario.name;
    run.label = label_of(plan.set);
    run.met = met;
    return run;
  }
  const std::string folder_ = testing::TempDir() + "lockstep_state_" + std::to_string(getpid());
};

TEST_F(LastFailed, IsNothingAtFirst) {
  auto all = files(3);
  EXPECT_TRUE(keep_last_failed(&all).empty());
  EXPECT_EQ(count_runs(all), 0);
}

TEST_F(LastFailed, StaysUntilItPasses) {
  auto all = files(3);
  ResultDocument document;
  document.runs = {result(all[0].plans[0], true), result(all[0].plans[1], false),
                   result(all[1].plans[2], std::nullopt)};
  note_last_failed(document);
  auto left = files(3);
  EXPECT_THAT(keep_last_failed(&left),
              ElementsAre("a world_size=1 seed=0", "b world_size=2 seed=0"));
  EXPECT_EQ(count_runs(left), 2);
  document.runs = {result(all[0].plans[1], true)};  // the other was not run this time
  note_last_failed(document);
  left = files(3);
  EXPECT_THAT(keep_last_failed(&left), ElementsAre("b world_size=2 seed=0"));
}

TEST_F(LastFailed, WhatCannotBeReadIsNothing) {
  std::filesystem::create_directory(folder_ + "/lockstep");
  for (const char* text : {"", "{}", "[1]", "{\"runs\": [[1, 2, 3], [\"a\"], 7]}", "\xff"}) {
    std::ofstream(folder_ + "/lockstep/last_failed.json") << text;
    auto all = files(3);
    EXPECT_TRUE(keep_last_failed(&all).empty()) << text;
  }
}

}  // namespace

}  // namespace lockstep
