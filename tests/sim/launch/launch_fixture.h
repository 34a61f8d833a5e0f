#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "sim/launch/executor.h"
#include "sim/launch/protocol.h"
#include "sim/launch/run_files.h"
#include "tests/quiet_time.h"

namespace lockstep {

// Limits of time are for machines that others use as well; sanitizers make everything slower.
#ifdef __SANITIZE_ADDRESS__
inline constexpr double kSlowness = 5;
#else
inline constexpr double kSlowness = 1;
#endif

// Runs plans with the fake worker in a fresh directory; afterwards no process may be left.
class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    // Threads of a test inherit this: its signals reach the launcher's descriptor alone.
    sigset_t launchers;
    sigemptyset(&launchers);
    sigaddset(&launchers, SIGINT);
    sigaddset(&launchers, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &launchers, nullptr);
    char name[] = "/tmp/lockstep-launch-XXXXXX";
    dir_ = ::mkdtemp(name);
    options_.out_dir = dir_;
    options_.worker_program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fake_worker";
  }
  ~LaunchTest() override {
    EXPECT_EQ(processes_of(dir_), std::vector<pid_t>{}) << "left behind";
    std::filesystem::remove_all(dir_);
  }

  // Whoever has a file of the directory as its stdout is a worker or zygote of it.
  static std::vector<pid_t> processes_of(const std::string& dir) {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::error_code gone;
      const std::string out = std::filesystem::read_symlink(entry.path() / "fd/1", gone);
      if (!gone && out.starts_with(dir + "/")) found.push_back(std::stoi(name));
    }
    return found;
  }

  static RunPlan make(const std::string& name, int64_t world_size = 4, int64_t steps = 2) {
    RunPlan plan;
    plan.scenario.name = name;
    plan.scenario.what = "a test";
    plan.scenario.world_size = world_size;
    plan.scenario.steps = steps;
    plan.scenario.batch_size = world_size;
    plan.scenario.timeouts = {5'000, 5'000, 5'000, 20'000, 60'000};
    plan.record_capacity = 256;
    return plan;
  }
  // One whose ranks are late after 0.3 s without a record.
  static RunPlan make_impatient(const std::string& name, int64_t world_size = 4) {
    RunPlan plan = make(name, world_size);
    plan.scenario.timeouts.step_ms = 300;
    return plan;
  }
  static RunPlan in_threads(RunPlan plan, uint64_t seed) {
    plan.threads = true;
    plan.scenario.seed = seed;
    return plan;
  }

  int run(const std::vector<RunPlan>& plans) {
    const QuietTime time;
    const int code = execute(plans, options_, [&](size_t index, RunOutcome outcome) {
      EXPECT_EQ(outcomes_.count(index), 0u) << "delivered twice: " << index;
      outcomes_[index] = std::move(outcome);
      return keep_;
    });
    took_ms_ = time.ms();
    contended_ms_ = time.contended_ms();
    return code;
  }
  RunOutcome& run_one(const RunPlan& plan) {
    EXPECT_EQ(run({plan}), 0);
    EXPECT_EQ(outcomes_.size(), 1u);
    return outcomes_[0];
  }
  static const ProcessEnd& end_of(const RunOutcome& outcome, const std::string& who) {
    for (const ProcessEnd& end : outcome.ends)
      if (end.who == who) return end;
    ADD_FAILURE() << who << " has no end";
    static const ProcessEnd kNone;
    return kNone;
  }
  static std::string ends_text(const RunOutcome& outcome) {
    std::string text;
    for (const ProcessEnd& end : outcome.ends)
      text += fmt::format("{}: code {} signal {} by_launcher {} past_deadline {}\n", end.who,
                          end.exit_code, end.signal, end.by_launcher, end.past_deadline);
    return text;
  }
  static void wait_until(const std::function<bool()>& holds, int limit_ms = 30'000) {
    for (int waited = 0; waited < limit_ms && !holds(); waited += 5)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(holds());
  }

  std::string dir_;
  ExecutorOptions options_;
  std::map<size_t, RunOutcome> outcomes_;
  bool keep_ = false;
  double took_ms_ = 0;       // as QuietTime counts
  double contended_ms_ = 0;  // what it left out
};

}  // namespace lockstep
