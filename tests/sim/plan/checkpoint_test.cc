#include <gtest/gtest.h>

#include "scenarios/checkpoint_file.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

class CheckpointPlan : public testing::Test {
 protected:
  Expected<RunPlan> plan_of(const Strings& sets) {
    const auto file = load_scenario_file(folder_.write("f.json", kScenario), {sets, {}});
    EXPECT_TRUE(file) << (file ? "" : to_text(file.errors()[0]));
    return make_plan(file.value().combinations[0].scenario);
  }

  // "pointer: message" of the first error.
  std::string error_of(const Strings& sets) {
    const auto plan = plan_of(sets);
    return plan ? "" : plan.errors()[0].pointer + ": " + plan.errors()[0].message;
  }

  // Of kScenario after its step 2.
  CheckpointFile file() const {
    CheckpointFile file;
    file.step = 2;
    file.epoch = 2;
    file.batch_size = 24;
    file.world_size = 4;
    file.seed = 123;
    file.dtype = "float32";
    file.tensors = {{"parameter", "weight", "float32", {2, 3}, std::string(24, 'w')},
                    {"parameter", "bias", "float32", {2}, std::string(8, 'b')}};
    return file;
  }
  void write(const CheckpointFile& file) {
    write_checkpoint(file, folder_.path() + "/run.checkpoint", "test");
  }

  TemporaryFolder folder_;
  const std::string resume_ = "/checkpoint={\"kind\":\"resume\",\"path\":\"run.checkpoint\"}";
};

TEST_F(CheckpointPlan, ReplayStartsAnewAfterTheResume) {
  const auto plan = plan_of({"/checkpoint={\"kind\":\"save_and_resume\",\"after_step\":2}"});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan.value().replay.restart_after_steps, (std::vector<int64_t>{2}));
  EXPECT_EQ(plan.value().start_step, 0);
  EXPECT_EQ(error_of({"/checkpoint={\"kind\":\"save_and_resume\",\"after_step\":3}"}),
            "/checkpoint/after_step: no step comes after step 3");
  EXPECT_EQ(error_of({"/checkpoint={\"kind\":\"save_and_resume\",\"after_step\":1,"
                      "\"load_delay_rank\":4}"}),
            "/checkpoint/load_delay_rank: there is no rank 4");
}

TEST_F(CheckpointPlan, ResumesFromTheFile) {
  CheckpointFile file = this->file();
  file.resumed_after = {1};
  write(file);
  auto plan = plan_of({resume_});
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  EXPECT_EQ(plan.value().start_step, 2);
  EXPECT_EQ(plan.value().replay.restart_after_steps, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(plan.value().goldens, (Strings{"replay"}));
  plan = plan_of({resume_, "/world_size=3"});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan.value().goldens.empty());
  ASSERT_EQ(plan.value().not_applicable.size(), 1U);
  EXPECT_EQ(plan.value().not_applicable[0].first, Lane::replay);
}

TEST_F(CheckpointPlan, DoubleRunMayBeBehindAfterAKill) {
  const Strings sets = {resume_, "/lanes=[\"float64\"]", "/checkpoint/if_missing=start"};
  CheckpointFile file = this->file();
  write(file);
  auto plan = plan_of(sets);
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  EXPECT_EQ(plan.value().start_step, 2);
  EXPECT_EQ(plan.value().double_start_step, 0);
  file.dtype = "float64";
  file.step = file.epoch = 1;
  file.tensors[0] = {"parameter", "weight", "float64", {2, 3}, std::string(48, 'w')};
  file.tensors[1] = {"parameter", "bias", "float64", {2}, std::string(16, 'b')};
  write_checkpoint(file, folder_.path() + "/run.checkpoint.double", "test");
  plan = plan_of(sets);
  ASSERT_TRUE(plan) << to_text(plan.errors()[0]);
  EXPECT_EQ(plan.value().double_start_step, 1);
}

TEST_F(CheckpointPlan, FileThatIsNotThereIsAnErrorUnlessItMayBe) {
  EXPECT_EQ(error_of({resume_}), "/checkpoint/path: checkpoint " + folder_.path() +
                                     "/run.checkpoint: there is no such file");
  const auto plan = plan_of({resume_, "/checkpoint/if_missing=start"});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan.value().start_step, 0);
  EXPECT_TRUE(plan.value().replay.restart_after_steps.empty());
}

TEST_F(CheckpointPlan, FileOfAnotherRunIsAnError) {
  const auto error = [&](auto&& change) {
    CheckpointFile file = this->file();
    change(&file);
    write(file);
    return error_of({resume_});
  };
  EXPECT_EQ(error([](CheckpointFile*) {}), "");
  EXPECT_EQ(error([](CheckpointFile* f) { f->seed = 4; }),
            "/checkpoint/path: the file was saved with seed 4, but /seed is 123");
  EXPECT_EQ(error([](CheckpointFile* f) { f->dtype = "float64"; }),
            "/checkpoint/path: the file was saved with dtype float64, but /dtype is float32");
  EXPECT_EQ(error([](CheckpointFile* f) { f->step = 3, f->epoch = 3; }),
            "/steps: the file holds step 3 already");
  EXPECT_EQ(error([](CheckpointFile* f) { f->batch_size = 12; }),
            "/checkpoint/path: the file was saved with batch_size 12, but /batch_size is 24");
  EXPECT_EQ(error([](CheckpointFile* f) { f->epoch = 1; }),
            "/checkpoint/path: the file's 2 steps make 1 epochs and 0 steps, which an epoch of 1 "
            "steps does not");
  EXPECT_EQ(error([](CheckpointFile* f) {
              f->tensors[0].shape = {3, 2};
            }),
            "/checkpoint/path: the file holds another model's parameters");
  folder_.write("run.checkpoint", "something else");
  EXPECT_NE(error_of({resume_}).find("this is not a checkpoint of lockstep"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
