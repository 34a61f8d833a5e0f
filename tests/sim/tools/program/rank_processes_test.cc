#include "sim/tools/program/rank_processes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "sim/launch/run_files.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

// Programs in the shell that start their "ranks" as children, and tell of them as the agent would.
class RankProcessesTest : public ::testing::Test {
 protected:
  void start(const std::string& script) {
    launch_ = {
        .start = {.command = {"/bin/sh", "-c", "cd " + folder_ + "; " + script}, .spawns = true},
        .folder = folder_,
        .agent = folder_,
        .world = 2};
    processes_.start(launch_);
  }
  // Looks until it is so, ten seconds at most; places of those that ended.
  std::vector<size_t> look_until(const std::function<bool()>& so) {
    std::vector<size_t> ended;
    for (int i = 0; i < 1000 && !so(); ++i) {
      for (const size_t place : processes_.look()) ended.push_back(place);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(so());
    return ended;
  }
  bool has_ended(size_t place) const {
    return processes_.ranks().size() > place && processes_.ranks()[place].ended;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  ProgramLaunch launch_;
  RankProcesses processes_;
};

constexpr const char* kRank = R"(sleep 60 & echo "{\"pid\": $!}" > rank-0.process.json; )";
// Of the shell's child: what its parent knows.
constexpr const char* kEnd =
    R"(kill -9 $!; wait $!; echo "{\"pid\": $!, \"sent\": 0, \"signal\": 9, \"exit_code\": -1}" >> children.jsonl; )";

TEST_F(RankProcessesTest, HowARankEndedIsWhatItsParentTells) {
  start(std::string(kRank) + "sleep 0.3; " + kEnd + "sleep 60");
  EXPECT_EQ(look_until([&] { return has_ended(0); }), std::vector<size_t>{0});
  EXPECT_EQ(processes_.ranks()[0].rank, 0);
  EXPECT_EQ(processes_.ranks()[0].signal, SIGKILL);
  EXPECT_FALSE(processes_.ranks()[0].by_program);
  EXPECT_TRUE(processes_.at_work());
}

TEST_F(RankProcessesTest, OneThatTheProgramEndsIsTold) {
  start(
      std::string(kRank) +
      R"(sleep 0.3; echo "{\"pid\": $!, \"sent\": 9, \"signal\": 0, \"exit_code\": 0}" >> children.jsonl; )" +
      kEnd + "sleep 60");
  look_until([&] { return has_ended(0); });
  EXPECT_TRUE(processes_.ranks()[0].by_program);
}

TEST_F(RankProcessesTest, BeforeItsParentHasWaitedTheKernelTells) {
  start(std::string(kRank) + "exec sleep 60");  // which waits for nobody, as a shell may
  const std::string program = fmt::format("/proc/{}/comm", processes_.parent()->process.pid);
  look_until([&] { return !processes_.ranks().empty() && read_file(program) == "sleep\n"; });
  ::kill(processes_.ranks()[0].process.pid, SIGTERM);
  look_until([&] { return has_ended(0); });
  EXPECT_EQ(processes_.ranks()[0].signal, SIGTERM);
}

TEST_F(RankProcessesTest, WhereNobodyTellsItIsNotKnown) {
  start(std::string(kRank) + "sleep 0.3; kill -9 $!; wait $!; exit 3");
  look_until([&] { return has_ended(0); });
  EXPECT_EQ(processes_.ranks()[0].exit_code, -1);
  EXPECT_EQ(processes_.ranks()[0].signal, 0);
  EXPECT_EQ(processes_.parent()->exit_code, 3);
}

TEST_F(RankProcessesTest, WhatCannotBeReadIsNotBelievedAndTold) {
  start(std::string(kRank) + "echo '{\"pid\": 1' > children.jsonl; sleep 0.3; " + kEnd + "exit 3");
  look_until([&] { return has_ended(0); });
  EXPECT_EQ(processes_.ranks()[0].exit_code, -1);
  EXPECT_EQ(processes_.ranks()[0].signal, 0);
  EXPECT_NE(processes_.why_unread().find("children.jsonl:1:10: error: "), std::string::npos)
      << processes_.why_unread();
}

TEST_F(RankProcessesTest, NobodyElsesProcessIsTakenForARank) {
  const pid_t other = ::fork();
  if (other == 0) {
    ::pause();
    ::_exit(0);
  }
  {
    RankProcesses processes;
    launch_ = {.start = {.command = {"/bin/sleep", "60"}, .spawns = true},
               .folder = folder_,
               .agent = folder_,
               .world = 2};
    temporary_.write("rank-0.process.json", fmt::format(R"({{"pid": {}}})", other));
    temporary_.write("rank-1.process.json", R"({"pid": 1e99})");
    temporary_.write("children.jsonl", "no JSON\n{\"pid\": \"x\"}\n[[[[\n");
    processes.start(launch_);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(processes.look().empty());
    EXPECT_TRUE(processes.ranks().empty());
    EXPECT_NE(processes.why_unread().find("rank-1.process.json"), std::string::npos);
  }
  EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0) << "it lives on";
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_F(RankProcessesTest, RanksEndWithTheObject) {
  pid_t rank = 0;
  {
    RankProcesses processes;
    launch_ = {.start = {.command = {"/bin/sh", "-c",
                                     "cd " + folder_ +
                                         "; setsid sleep 60 & echo \"{\\\"pid\\\": $!}\" > "
                                         "rank-0.process.json; sleep 60"},
                         .spawns = true},
               .folder = folder_,
               .agent = folder_,
               .world = 2};
    processes.start(launch_);
    for (int i = 0; i < 1000 && processes.ranks().empty(); ++i) {
      processes.look();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_EQ(processes.ranks().size(), 1U);
    rank = processes.ranks()[0].process.pid;
    EXPECT_EQ(::kill(rank, 0), 0);
  }
  for (int i = 0;
       i < 1000 && read_process_state(rank).state != 0 && read_process_state(rank).state != 'Z';
       ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(read_process_state(rank).state == 0 || read_process_state(rank).state == 'Z');
}

}  // namespace
}  // namespace lockstep
