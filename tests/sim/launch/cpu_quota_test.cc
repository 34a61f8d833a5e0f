#include "sim/launch/cpu_quota.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "scenarios/base/clock.h"
#include "sim/record/core_wait.h"

namespace lockstep {
namespace {

double cpu_ms() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) * 1e-6;
}

// Part of one core that a busy loop of 300 ms gets.
double share_of_a_busy_loop() {
  const double before = cpu_ms();
  const int64_t begin = now_ns();
  while (now_ns() < begin + 300'000'000) {
  }
  return (cpu_ms() - before) / 300;
}

TEST(CpuQuota, ABusyLoopGetsItsShareAndNoMore) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::string why;
    auto quota = CpuQuota::enter(0.25, &why);
    if (quota == nullptr) ::_exit(2);
    const double limited = share_of_a_busy_loop();
    const std::string folder = quota->folder();
    quota.reset();
    struct stat info {};
    const bool gone = ::stat(folder.c_str(), &info) != 0;
    // A little more than the share passes within a period.
    // How little it gets is up to what else the machine does.
    ::_exit(limited < 0.45 && limited > 0 && gone ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no control groups that this user may make";
  EXPECT_EQ(status, 0);
}

double throttled_ms(const std::string& folder) {
  std::ifstream file(folder + "/cpu.stat");
  std::string key;
  for (double value = 0; file >> key >> value;)
    if (key == "throttled_time" || key == "throttled_usec")
      return value * (key == "throttled_usec" ? 1e-3 : 1e-6);
  return 0;
}

// A rank that its own quota slows is slow; one that others keep from a core is not.
TEST(CpuQuota, WhatItTakesAwayIsNoWaitForACore) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::string why;
    const auto wait = CoreWait::of_this_thread();
    const int64_t begin = now_ns(), before = wait->own_ns();
    auto quota = CpuQuota::enter(0.25, &why);
    if (quota == nullptr) ::_exit(2);
    wait->look_for_group();
    const double share = share_of_a_busy_loop();
    const double passed_ms = static_cast<double>(now_ns() - begin) * 1e-6;
    const double throttled = throttled_ms(quota->folder());
    const double waited_ms = static_cast<double>(wait->own_ns() - before) * 1e-6;
    const bool right = waited_ms <= passed_ms - share * 300 - 0.8 * throttled + 10;
    quota.reset();
    wait->look_for_group();
    const double since_ms = static_cast<double>(now_ns() - begin) * 1e-6 - passed_ms;
    const bool kept =
        static_cast<double>(wait->own_ns() - before) * 1e-6 < waited_ms + since_ms + 1;
    ::_exit(right && kept ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no control groups that this user may make";
  EXPECT_EQ(status, 0);
}

TEST(CpuQuota, OfAProcessThatDiedInItIsForgotten) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::string why;
    auto quota = CpuQuota::enter(0.5, &why);
    ::_exit(quota == nullptr ? 2 : 0);  // without the destructor
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no control groups that this user may make";
  const std::string folder = "/sys/fs/cgroup/cpu/lockstep-" + std::to_string(child);
  struct stat info {};
  CpuQuota::forget(child);
  EXPECT_NE(::stat(folder.c_str(), &info), 0);
}

}  // namespace
}  // namespace lockstep
