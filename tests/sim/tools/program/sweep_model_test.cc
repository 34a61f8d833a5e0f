#include "sim/tools/program/sweep_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "sim/des/machine_model.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/tools/program/made_traces.h"

namespace lockstep {
namespace {

class ProgramModelTest : public testing::Test {
 protected:
  ProgramModel model_of(const std::vector<double>& caps) {
    for (const double cap : caps) runs_.push_back(made_.run_at(cap));
    std::vector<const TracedProgram*> all;
    for (const TracedProgram& run : runs_) all.push_back(&run);
    return program_model(all, {"python3", "my train.py"}, 2).value();
  }

  const MadeProgram made_ = {};
  std::vector<TracedProgram> runs_;
  const TemporaryFolder own_;
  const std::string folder_ = own_.path();
};

TEST_F(ProgramModelTest, IsWhatTheRunsWereMadeOf) {
  const ProgramModel model = model_of({0.25, 1});
  EXPECT_EQ(model.sizes, made_.elements);
  EXPECT_EQ(model.command, "python3 'my train.py'");
  ASSERT_EQ(model.layers.size(), 8U);
  EXPECT_NEAR(model.layers.front().ready_ms, 8, 1e-9);
  EXPECT_NEAR(model.layers.back().ready_ms, 1, 1e-9);
  EXPECT_NEAR(model.layers[3].forward_ms, 0.25, 1e-9);
  EXPECT_EQ(model.fit.machine.load_ns, made_.load_ns);
  EXPECT_EQ(model.fit.machine.optimizer_ns, made_.finish_ns);
  EXPECT_NEAR(model.fit.machine.bucket_ns, 0, 1);
}

// In virtual time it takes what it was made to take, at caps that no run had too.
TEST_F(ProgramModelTest, TakesItsOwnTimeAtOtherCaps) {
  const ProgramModel model = model_of({0.25, 1});
  for (const double cap : {0.25, 0.5, 1.0, 2.0}) {
    const int64_t first_bucket = first_bucket_bytes(runs_, cap);
    EXPECT_EQ(first_bucket, bytes_of_mib(cap));
    write_program_model(model, cap, first_bucket, folder_);
    const auto made = forecast(model, folder_, cap, first_bucket);
    ASSERT_TRUE(made) << to_text(made.errors()[0]);
    EXPECT_EQ(made.value().bucket_bytes.size(), made_.buckets_at(cap).size()) << cap;
    EXPECT_NEAR(made.value().step_ms / made_.step_ms(cap), 1, 0.02) << cap;
  }
}

TEST_F(ProgramModelTest, LeavesWhatSimulateReads) {
  const ProgramModel model = model_of({0.25, 1});
  write_program_model(model, 1, bytes_of_mib(1), folder_);
  const auto machine = read_machine_model(folder_ + "/" + kProgramMachine);
  ASSERT_TRUE(machine) << to_text(machine.errors()[0]);
  EXPECT_EQ(machine.value().fitted_on,
            (std::vector<std::string>{"2 ranks, bucket_cap_mb 0.25, 1"}));
  const auto profile = read_profile(folder_ + "/" + kProgramProfile);
  ASSERT_TRUE(profile) << to_text(profile.errors()[0]);
  EXPECT_EQ(profile.value().layers.size(), 8U);
}

TEST_F(ProgramModelTest, BucketsInAnotherOrderAreNoModel) {
  TracedProgram run = made_.run_at(1);
  for (ProgramTimes& rank : run.ranks)
    for (TracedStep& step : rank.trace->steps) step.buckets[0].bytes -= 4;
  EXPECT_EQ(why_not_simulated({run}), "");
  EXPECT_FALSE(program_model({&run}, {"train"}, 2));
}

TEST_F(ProgramModelTest, RunsThatDifferAreNone) {
  TracedProgram run = made_.run_at(1);
  std::swap(run.ranks[0].trace->order[0], run.ranks[0].trace->order[1]);
  EXPECT_NE(why_not_simulated({made_.run_at(0.25), run}).find("another order"), std::string::npos);
  EXPECT_NE(why_not_simulated(std::vector<TracedProgram>{}), "");
}

}  // namespace
}  // namespace lockstep
