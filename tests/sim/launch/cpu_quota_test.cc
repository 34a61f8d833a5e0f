#include "sim/launch/cpu_quota.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scenarios/base/clock.h"

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
    ::_exit(limited < 0.45 && limited > 0.05 && gone ? 0 : 1);
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
