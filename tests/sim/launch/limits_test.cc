#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "scenarios/base/clock.h"
#include "sim/launch/limits.h"
#include "sim/record/core_wait.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Groups : public testing::Test {
 protected:
  ~Groups() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const std::string root_ = testing::TempDir() + "lockstep_groups_" + std::to_string(getpid());
};

TEST_F(Groups, WithoutALimitThereIsNone) {
  EXPECT_EQ(quota_cores(root_), INT64_MAX);
  EXPECT_EQ(memory_below_limits(root_), INT64_MAX);
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(quota_cores(root_), INT64_MAX);
  EXPECT_EQ(memory_below_limits(root_), INT64_MAX);
}

TEST_F(Groups, TheTightestOfAllAboveCounts) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/a/memory.max", "1000\n");
  write("/sys/fs/cgroup/a/memory.current", "700\n");
  write("/sys/fs/cgroup/a/memory.stat", "anon 400\ninactive_file 100\n");
  EXPECT_EQ(quota_cores(root_), 2);  // 1.5 of them
  EXPECT_EQ(memory_below_limits(root_), 400);
}

TEST_F(Groups, AContainerSeesItsGroupAsTheRoot) {
  write("/proc/self/cgroup", "0::/system.slice/not-here\n");
  write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota_cores(root_), 3);
  write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(quota_cores(root_), 3);
}

TEST_F(Groups, OfVersionOne) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n3:memory:/x\n");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "200000\n");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1000\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(quota_cores(root_), 2);
  EXPECT_EQ(memory_below_limits(root_), 4000);
}

TEST(Capacity, IsSomething) {
  const Capacity capacity = this_capacity();
  EXPECT_GE(capacity.cores, 1);
  EXPECT_GT(capacity.memory_bytes, 0);
}

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

// In a process of its own: what it has more than now.
[[noreturn, maybe_unused]] void ask_within(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  const std::string why = why_no_room(1);
  std::fputs(why.c_str(), stderr);
  std::exit(why.empty() ? 0 : 1);
}

TEST(MemoryRoom, NothingIsAskedForWithoutALimit) {
  EXPECT_EQ(why_no_room(1'000'000), "");
  EXPECT_NO_THROW(take_room(1'000'000));
}

#ifndef __SANITIZE_ADDRESS__  // which dies itself where it gets no more address space
TEST(MemoryRoom, ALimitThatIsTooTightIsNamed) {
  EXPECT_EXIT(ask_within(rlim_t{200} << 20), testing::ExitedWithCode(1),
              "limited to 209 MB of address space \\(ulimit -v\\).* needs [0-9]+ MB more");
  EXPECT_EXIT(ask_within(rlim_t{1} << 40), testing::ExitedWithCode(0), "^$");
}
#endif

}  // namespace

}  // namespace lockstep
