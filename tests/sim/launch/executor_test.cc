#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <system_error>

#include "sim/launch/executor.h"
#include "sim/launch/protocol.h"
#include "sim/record/evidence.h"
#include "sim/record/recorder.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/launch/launch_fixture.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class ExecutorTest : public LaunchTest, public testing::WithParamInterface<bool> {
 protected:
  ExecutorTest() { options_.fresh_processes = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Processes, ExecutorTest, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "fresh" : "forked"; });

TEST_P(ExecutorTest, GathersWhatARunLeaves) {
  RunPlan plan = make("good");
  plan.goldens = {"replay", "float64"};
  const RunOutcome& outcome = run_one(plan);
  ASSERT_EQ(outcome.ends.size(), 6u) << ends_text(outcome);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(outcome.ends[i].exit_code, 0) << ends_text(outcome);
    EXPECT_EQ(outcome.ends[i].order, static_cast<int64_t>(i));
    EXPECT_FALSE(outcome.ends[i].by_launcher);
  }
  ASSERT_EQ(outcome.ranks.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(outcome.ranks[rank].rank, rank);
    EXPECT_EQ(outcome.ranks[rank].events.size(), 5u);
    EXPECT_TRUE(evidence_from_json_text(outcome.evidence[rank]).has_value());
    EXPECT_EQ(outcome.log_tails[rank], "");
  }
  EXPECT_EQ(outcome.goldens.size(), 2u);
  EXPECT_EQ(outcome.golden_problem, "");
  EXPECT_FALSE(outcome.interrupted);
  EXPECT_EQ(outcome.run_dir, dir_ + "/0001");
  EXPECT_FALSE(std::filesystem::exists(outcome.run_dir));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/zygote.log"));
}

TEST_P(ExecutorTest, KeepsTheDirectoryWhereAsked) {
  keep_ = true;
  const RunOutcome& outcome = run_one(make("good", 2));
  EXPECT_EQ(read_file(plan_path(outcome.run_dir)), to_text(outcome.plan));
  EXPECT_THAT(read_file(log_path(outcome.run_dir, "rank-1")), HasSubstr("rank 1 has pid"));
  struct stat status;
  ASSERT_EQ(::stat(outcome.run_dir.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_P(ExecutorTest, KeepAllKeepsPassingRunsToo) {
  options_.keep_all = true;
  EXPECT_TRUE(std::filesystem::exists(run_one(make("good", 1)).run_dir));
}

TEST_P(ExecutorTest, ACrashIsNamedFirst) {
  const RunOutcome& outcome = run_one(make("crash:2"));
  ASSERT_EQ(outcome.ends.size(), 4u);
  EXPECT_EQ(outcome.ends[0].rank, 2) << ends_text(outcome);
  EXPECT_EQ(outcome.ends[0].signal, SIGSEGV);
  EXPECT_EQ(outcome.ends[0].exit_code, -1);
  EXPECT_FALSE(outcome.ends[0].by_launcher);
  for (size_t i = 1; i < 4; ++i)
    EXPECT_EQ(outcome.ends[i].exit_code, kExitCommError) << ends_text(outcome);
  EXPECT_THAT(outcome.log_tails[2], HasSubstr("rank 2 has pid"));
  EXPECT_THAT(outcome.evidence[0], HasSubstr("a peer is gone"));
  EXPECT_EQ(outcome.evidence[2], "");
  EXPECT_EQ(outcome.ranks[2].events.back().step, 1);  // readable after its death
}

TEST_P(ExecutorTest, AnExitCodeAndAnExceptionAreReported) {
  ASSERT_EQ(run({make("exit:1"), make("throw:3")}), 0);
  EXPECT_EQ(outcomes_[0].ends[0].rank, 1) << ends_text(outcomes_[0]);
  EXPECT_EQ(outcomes_[0].ends[0].exit_code, 7);
  EXPECT_EQ(outcomes_[1].ends[0].rank, 3) << ends_text(outcomes_[1]);
  EXPECT_EQ(outcomes_[1].ends[0].exit_code, kExitException);
  EXPECT_THAT(outcomes_[1].log_tails[3], HasSubstr("rank-3: thrown by the test"));
}

TEST_P(ExecutorTest, AHangIsEndedPastItsDeadline) {
  const RunOutcome& outcome = run_one(make_impatient("hang:1"));
  const ProcessEnd& hung = end_of(outcome, "rank-1");
  EXPECT_TRUE(hung.past_deadline) << ends_text(outcome);
  EXPECT_TRUE(hung.by_launcher);
  EXPECT_EQ(hung.signal, SIGTERM);
  EXPECT_THAT(outcome.log_tails[1], HasSubstr("at its deadline"));
  EXPECT_LT(took_ms_, 4000 * kSlowness);
  ASSERT_TRUE(hung.state);
  EXPECT_EQ(hung.state->state, 'S');
  EXPECT_EQ(hung.state->syscall, "pause");
  ASSERT_GE(hung.state->stack.size(), 3u);
  EXPECT_THAT(hung.state->stack, testing::Contains(HasSubstr("lockstep::hang_for_good()")));
  EXPECT_THAT(hung.state->stack, testing::Contains(HasSubstr("lockstep::be_worker")));
}

TEST_P(ExecutorTest, AHangIsKnownSoonAfterItsTimeOut) {
  RunPlan plan = make_impatient("hang:1");
  const RunOutcome& outcome = run_one(plan);
  const double known_ms =
      static_cast<double>(outcome.failed_ns - outcome.ranks[1].events.back().time_ns) * 1e-6;
  EXPECT_GT(known_ms, 300);
  EXPECT_LT(known_ms - contended_ms_, 300 + 500 * kSlowness);
  EXPECT_GT(outcome.began_ns, 0);
  EXPECT_LT(outcome.began_ns, outcome.failed_ns);
}

TEST_P(ExecutorTest, WhoWaitsForTheStoreIsKnown) {
  RunPlan plan = make("waits:0", 2);
  plan.scenario.timeouts.rendezvous_ms = 300;
  const RunOutcome& outcome = run_one(plan);
  const ProcessEnd& waiting = end_of(outcome, "rank-0");
  ASSERT_TRUE(waiting.state) << ends_text(outcome);
  EXPECT_EQ(waiting.state->store_key, "never");
}

// Its exit code says that all is well, its records that it is not done.
TEST_P(ExecutorTest, AnExitThatComesTooEarlyIsKnownAtOnce) {
  const RunOutcome& outcome = run_one(make("leave:1"));
  const ProcessEnd& left = end_of(outcome, "rank-1");
  EXPECT_EQ(left.exit_code, 0) << ends_text(outcome);
  EXPECT_GE(outcome.failed_ns, left.time_ns);
  EXPECT_LT(static_cast<double>(outcome.failed_ns - left.time_ns) * 1e-6 - contended_ms_,
            100 * kSlowness);
}

// A peer that ends because of it is never learnt of before it.
TEST_P(ExecutorTest, ACrashIsKnownAtOnce) {
  const RunOutcome& outcome = run_one(make("killed:1"));
  EXPECT_EQ(outcome.ends[0].rank, 1) << ends_text(outcome);
  EXPECT_GE(outcome.failed_ns, outcome.ends[0].time_ns);
  EXPECT_LT(static_cast<double>(outcome.failed_ns - outcome.ends[0].time_ns) * 1e-6 - contended_ms_,
            100 * kSlowness);
  for (const ProcessEnd& end : outcome.ends) EXPECT_EQ(end.state.has_value(), end.rank != 1);
}

TEST_P(ExecutorTest, AStoppedProcessIsKilled) {
  const RunOutcome& outcome = run_one(make_impatient("stop:1"));
  const ProcessEnd& stopped = end_of(outcome, "rank-1");
  EXPECT_TRUE(stopped.past_deadline) << ends_text(outcome);
  EXPECT_EQ(stopped.signal, SIGKILL);
  EXPECT_THAT(outcome.log_tails[1], HasSubstr("T (stopped)"));
  ASSERT_TRUE(stopped.state);
  EXPECT_EQ(stopped.state->state, 'T');
  EXPECT_TRUE(stopped.state->stack.empty());  // it is not continued for that
}

TEST_P(ExecutorTest, ARendezvousThatNeverHappensEnds) {
  RunPlan plan = make("absent:0", 2);
  plan.scenario.timeouts.rendezvous_ms = 300;
  const RunOutcome& outcome = run_one(plan);
  EXPECT_TRUE(end_of(outcome, "rank-0").past_deadline) << ends_text(outcome);
  EXPECT_LT(took_ms_, 4000 * kSlowness);
}

TEST_P(ExecutorTest, AGoldenRunThatDiesIsAProblemOfItsOwn) {
  RunPlan plan = make("golden_dies", 2);
  plan.goldens = {"replay"};
  EXPECT_EQ(run_one(plan).golden_problem, "golden-replay ended with exit code 3: no golden today");
}

TEST_P(ExecutorTest, AGoldenRunHasUntilTheRunsDeadline) {
  RunPlan plan = make("golden_hangs", 2);
  plan.goldens = {"exact"};
  plan.scenario.timeouts.run_ms = 600;
  const RunOutcome& outcome = run_one(plan);
  EXPECT_EQ(outcome.golden_problem, "golden-exact was still running at the run's deadline");
  EXPECT_EQ(end_of(outcome, "rank-0").exit_code, 0) << ends_text(outcome);
}

TEST_P(ExecutorTest, ManyRunsSideBySide) {
  options_.jobs = 8;
  std::vector<RunPlan> plans;
  for (int i = 0; i < 50; ++i) plans.push_back(make(i % 10 == 7 ? "killed:1" : "good", 2, 1));
  ASSERT_EQ(run(plans), 0);
  ASSERT_EQ(outcomes_.size(), 50u);
  for (size_t i = 0; i < 50; ++i)
    EXPECT_EQ(outcomes_[i].ends[0].signal, i % 10 == 7 ? SIGKILL : 0) << i << "\n"
                                                                      << ends_text(outcomes_[i]);
}

TEST_P(ExecutorTest, FewDescriptorsMeanFewerRunsSideBySide) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{96, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  options_.jobs = 16;
  EXPECT_EQ(run(std::vector<RunPlan>(16, make("good", 4, 1))), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const auto& [index, outcome] : outcomes_)
    for (const ProcessEnd& end : outcome.ends) EXPECT_EQ(end.exit_code, 0) << ends_text(outcome);
}

TEST_P(ExecutorTest, AnInterruptEndsWhatRuns) {
  options_.jobs = 2;
  const pid_t self = ::getpid();
  std::thread user([&] {
    wait_until([&] { return processes_of(dir_).size() >= 4; });
    ::kill(self, SIGINT);
  });
  const int code = run({make("sleep", 2), make("sleep", 2), make("good", 2)});
  user.join();
  EXPECT_EQ(code, SIGINT);
  ASSERT_EQ(outcomes_.size(), 2u);  // the third was never begun
  EXPECT_TRUE(outcomes_[0].interrupted && outcomes_[1].interrupted);
  EXPECT_TRUE(outcomes_[0].ends[0].by_launcher);
  EXPECT_LT(took_ms_, 2000 * kSlowness);
}

TEST_P(ExecutorTest, AKilledLauncherLeavesNobody) {
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    execute({make("sleep"), make("sleep")}, options_, [](size_t, RunOutcome) { return true; });
    ::_exit(0);
  }
  // Asleep they do not look at their control sockets, which would tell them as well.
  wait_until([&] {
    int asleep = 0;
    for (size_t run = 0; run < 2; ++run)
      for (int rank = 0; rank < 4; ++rank)
        asleep += read_file(log_path(run_dir_of(dir_, run), fmt::format("rank-{}", rank)))
                          .ends_with("asleep\n")
                      ? 1
                      : 0;
    return asleep == 8;
  });
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  wait_until([&] { return processes_of(dir_).empty(); }, 10'000);
}

TEST_P(ExecutorTest, ADoneThatThrowsLeavesNobody) {
  options_.jobs = 2;
  EXPECT_THROW(execute({make("sleep"), make("good", 1)}, options_,
                       [](size_t, RunOutcome) -> bool { throw std::runtime_error("full"); }),
               std::runtime_error);
  EXPECT_TRUE(processes_of(dir_).empty());
}

TEST_P(ExecutorTest, EnoughIsEnough) {
  options_.jobs = 2;
  bool enough = false;
  options_.enough = [&] { return enough; };
  size_t ended = 0;
  EXPECT_EQ(execute({make("sleep"), make("good", 1), make("good", 1)}, options_,
                    [&](size_t index, RunOutcome outcome) {
                      EXPECT_EQ(index, 1u);
                      EXPECT_FALSE(outcome.interrupted);
                      ++ended;
                      enough = true;
                      return false;
                    }),
            0);
  EXPECT_EQ(ended, 1u);  // the first was ended with it, the third was never begun
  EXPECT_FALSE(std::filesystem::exists(run_dir_of(dir_, 0)));
  EXPECT_FALSE(std::filesystem::exists(run_dir_of(dir_, 2)));
}

using EnvironmentTest = LaunchTest;

TEST_F(EnvironmentTest, NoRunsAreNoWork) { EXPECT_EQ(run({}), 0); }

TEST_F(EnvironmentTest, ThreadsOfBlasAskForAProcessOfTheirOwn) {
  RunPlan plan = make("good", 2);
  plan.scenario.threads = 2;
  EXPECT_EQ(run_one(plan).ends[0].exit_code, 0);
}

TEST_F(EnvironmentTest, AProgramThatIsNotThereIsAnError) {
  options_.worker_program = dir_ + "/absent";
  EXPECT_THROW(run({make("good")}), std::system_error);
}

TEST_F(EnvironmentTest, AProgramThatCannotLoadIsAnErrorWithItsWords) {
  options_.worker_program = dir_ + "/worker";
  write_file(options_.worker_program, "#!/bin/sh\necho libtorch.so: not found >&2\nexit 127\n");
  ::chmod(options_.worker_program.c_str(), 0700);
  try {
    run({make("good")});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("exit code 127: libtorch.so: not found"));
  }
}

TEST_F(EnvironmentTest, AnInterruptEndsAProgramThatNeverLoads) {
  options_.worker_program = dir_ + "/worker";
  write_file(options_.worker_program, "#!/bin/sh\nexec sleep 30\n");
  ::chmod(options_.worker_program.c_str(), 0700);
  std::thread user([&] {
    wait_until([&] { return !processes_of(dir_).empty(); });
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(run({make("good")}), SIGINT);
  user.join();
  EXPECT_TRUE(outcomes_[0].interrupted);
  EXPECT_LT(took_ms_, 3000 * kSlowness);
}

TEST_F(EnvironmentTest, ADirectoryThatIsNotThereIsAnError) {
  options_.out_dir = dir_ + "/absent";
  EXPECT_THROW(run({make("good")}), std::system_error);
}

TEST_F(EnvironmentTest, AKilledZygoteIsReplaced) {
  options_.jobs = 1;
  std::thread user([&] {
    pid_t zygote = 0;
    wait_until([&] {
      int ranks = 0;  // before they have their names they are called as the zygote
      for (const pid_t pid : processes_of(dir_)) {
        const std::string name = read_file(fmt::format("/proc/{}/comm", pid));
        if (name == "lockstep-zygote\n") zygote = pid;
        ranks += name.starts_with("lockstep-r") ? 1 : 0;
      }
      return ranks == 2 && zygote != 0;
    });
    if (zygote != 0) ::kill(zygote, SIGKILL);
  });
  EXPECT_EQ(run({make("sleep", 2), make("good", 2)}), 0);
  user.join();
  EXPECT_THAT(outcomes_[0].golden_problem, HasSubstr("lockstep-zygote has ended"));
  EXPECT_TRUE(outcomes_[0].ends[0].by_launcher);
  EXPECT_EQ(outcomes_[1].ends[0].exit_code, 0) << ends_text(outcomes_[1]);
}

// As on a machine that has no core for it: the deadline of all passes before a death is told.
TEST_F(EnvironmentTest, ADeathThatTheZygoteTellsLateIsNoHang) {
  RunPlan plan = make("hang:1", 3);
  plan.scenario.timeouts.step_ms = 3'000;
  std::thread user([&] {
    pid_t zygote = 0, victim = 0;
    wait_until([&] {
      for (const pid_t pid : processes_of(dir_)) {
        const std::string name = read_file(fmt::format("/proc/{}/comm", pid));
        if (name == "lockstep-zygote\n") zygote = pid;
        if (name == "lockstep-r1\n") victim = pid;
      }
      const auto pulse = read_pulse(records_path(dir_ + "/0001", 1));
      return zygote != 0 && victim != 0 && pulse && pulse->newest_phase == Phase::backward;
    });
    if (zygote == 0 || victim == 0) return;
    ::kill(zygote, SIGSTOP);
    ::kill(victim, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(4'500));
    ::kill(zygote, SIGCONT);
  });
  const RunOutcome& outcome = run_one(plan);
  user.join();
  const ProcessEnd& killed = end_of(outcome, "rank-1");
  EXPECT_EQ(killed.signal, SIGKILL) << ends_text(outcome);
  EXPECT_FALSE(killed.past_deadline) << ends_text(outcome);
  EXPECT_EQ(outcome.ends[0].rank, 1) << ends_text(outcome);
}

TEST_F(EnvironmentTest, WorkersHaveTheirNamesAndGroups) {
  std::thread user([&] {
    std::vector<std::string> names;
    wait_until([&] {
      names.clear();
      for (const pid_t pid : processes_of(dir_)) {
        names.push_back(read_file(fmt::format("/proc/{}/comm", pid)));
        if (names.back().starts_with("lockstep-r")) {
          EXPECT_EQ(::getpgid(pid), pid);
        }
      }
      return std::count(names.begin(), names.end(), "lockstep-r1\n") == 1;
    });
    EXPECT_THAT(names, testing::Contains("lockstep-zygote\n"));
    ::kill(::getpid(), SIGTERM);
  });
  EXPECT_EQ(run({make("sleep", 2)}), SIGTERM);
  user.join();
}

TEST_F(EnvironmentTest, TimeOfAFourRankRun) {
  std::vector<RunPlan> plans(20, make("good", 4));
  options_.jobs = 1;
  ASSERT_EQ(run(plans), 0);
  RecordProperty("run_ms", std::to_string(took_ms_ / 20));
  EXPECT_LT(took_ms_ / 20, 400 * kSlowness);
}

std::vector<std::string> stack_of(const std::string& frames) {
  const TemporaryFolder folder;
  return read_stack(folder.write("rank-0.stack", frames + kStackEnd + "\n"));
}

TEST(ReadStack, IsReadUpToWhatAHandlerWritesAtMost) {
  EXPECT_EQ(stack_of("/lib/libc.so.6(pause+0x10)[0x7f]\n").size(), 1u);
  EXPECT_THAT(stack_of(std::string(size_t{1} << 21, '\n')), testing::IsEmpty());
}

}  // namespace

}  // namespace lockstep
