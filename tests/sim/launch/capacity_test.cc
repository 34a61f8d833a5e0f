#include "sim/launch/capacity.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace lockstep
