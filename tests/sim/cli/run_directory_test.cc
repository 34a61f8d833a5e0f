#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/cli/run_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_run_directory_" + std::to_string(getpid());
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    setenv("XDG_STATE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_STATE_HOME");
    fs::remove_all(folder_);
  }
  std::string folder_;
};

TEST_F(RunDirectoryTest, IsNumberedAndPrivate) {
  auto first = RunDirectory::numbered();
  auto second = RunDirectory::numbered();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first.value().path(), folder_ + "/lockstep/runs/0001");
  EXPECT_EQ(second.value().path(), folder_ + "/lockstep/runs/0002");
  struct stat info {};
  ASSERT_EQ(stat(first.value().path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(RunDirectoryTest, OldOnesGoThoseThatPassedFirst) {
  for (int number = 1; number <= 5; ++number) {
    const std::string path = folder_ + "/000" + std::to_string(number);
    fs::create_directory(path);
    std::ofstream(path + "/verdict") << (number == 1 ? "fail" : "pass") << "\n";
  }
  prune(folder_, 3);
  EXPECT_TRUE(fs::exists(folder_ + "/0001"));
  EXPECT_FALSE(fs::exists(folder_ + "/0002"));
  EXPECT_FALSE(fs::exists(folder_ + "/0003"));
  EXPECT_TRUE(fs::exists(folder_ + "/0004"));
  prune(folder_, 0);
  EXPECT_FALSE(fs::exists(folder_ + "/0001"));
  EXPECT_FALSE(fs::exists(folder_ + "/0003"));
}

TEST_F(RunDirectoryTest, OneInUseStays) {
  auto directory = RunDirectory::numbered();
  ASSERT_TRUE(directory);
  prune(folder_ + "/lockstep/runs", 0);
  EXPECT_TRUE(fs::exists(directory.value().path()));
  EXPECT_FALSE(RunDirectory::at(directory.value().path()));
}

TEST_F(RunDirectoryTest, OutMustBeADirectory) {
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_FALSE(RunDirectory::at(folder_ + "/file"));
  EXPECT_FALSE(RunDirectory::at("/proc/nope/here"));
  auto made = RunDirectory::at(folder_ + "/a/b");
  ASSERT_TRUE(made);
  EXPECT_TRUE(fs::is_directory(folder_ + "/a/b"));
}

TEST_F(RunDirectoryTest, OutLosesEarlierRunsAndNothingElse) {
  for (const char* name : {"0001", "0002", "0003"}) fs::create_directory(folder_ + "/" + name);
  std::ofstream(folder_ + "/0001/plan.json") << "{}";
  std::ofstream(folder_ + "/0003/collective.json") << "{}";
  std::ofstream(folder_ + "/notes") << "mine";
  ASSERT_TRUE(RunDirectory::at(folder_));
  EXPECT_FALSE(fs::exists(folder_ + "/0001"));
  EXPECT_TRUE(fs::exists(folder_ + "/0002"));
  EXPECT_TRUE(fs::exists(folder_ + "/notes"));
}

}  // namespace

}  // namespace lockstep
