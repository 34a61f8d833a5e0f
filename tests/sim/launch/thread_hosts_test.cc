#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "sim/launch/thread_hosts.h"
#include "sim/record/evidence.h"
#include "tests/sim/launch/launch_fixture.h"

namespace lockstep {
namespace {

using ThreadHostsTest = LaunchTest;

double cpu_ms_of_this_process() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) { return t.tv_sec * 1e3 + t.tv_usec / 1e3; };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// What the fake host wrote for a run of this seed, and nothing of another run.
void expect_own(const RunOutcome& outcome, uint64_t seed) {
  for (size_t rank = 0; rank < outcome.ranks.size(); ++rank) {
    ASSERT_EQ(outcome.ranks[rank].events.size(), 2u);
    EXPECT_EQ(outcome.ranks[rank].events[0].value, seed);
    EXPECT_EQ(evidence_from_json_text(outcome.evidence[rank])->final_hash, std::to_string(seed));
  }
  EXPECT_EQ(outcome.ends.size(), outcome.ranks.size());
  for (const ProcessEnd& end : outcome.ends) EXPECT_EQ(end.exit_code, 0);
}

TEST_F(ThreadHostsTest, RunsManyOneAfterTheOther) {
  constexpr size_t kRuns = 300;
  std::vector<RunPlan> plans;
  for (size_t i = 0; i < kRuns; ++i) plans.push_back(in_threads(make("good", 1 + i % 4), i));
  const double before = cpu_ms_of_this_process();
  ASSERT_EQ(run(plans), 0);
  const double launcher_ms = (cpu_ms_of_this_process() - before) / kRuns;
  EXPECT_LT(launcher_ms, 2 * kSlowness);
  RecordProperty("launcher_us", std::to_string(launcher_ms * 1000));
  ASSERT_EQ(outcomes_.size(), kRuns);
  for (size_t i = 0; i < kRuns; ++i) expect_own(outcomes_[i], i);
  RecordProperty("run_us", std::to_string(took_ms_ * 1000 / kRuns));
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(ThreadHostsTest, ACrashTakesOneRunDownAndNoOther) {
  options_.jobs = 1;
  keep_ = true;
  std::vector<RunPlan> plans;
  for (size_t i = 0; i < 20; ++i)
    plans.push_back(in_threads(make(i == 9 ? "crash:1" : "good", 2), i));
  ASSERT_EQ(run(plans), 0);
  ASSERT_EQ(outcomes_.size(), 20u);
  for (size_t i = 0; i < 20; ++i)
    if (i != 9) expect_own(outcomes_[i], i);
  const RunOutcome& lost = outcomes_[9];
  ASSERT_EQ(lost.ends.size(), 2u);
  EXPECT_EQ(end_of(lost, "rank-0").exit_code, 0) << ends_text(lost);  // it had finished
  EXPECT_EQ(end_of(lost, "rank-1").signal, SIGSEGV);
  EXPECT_TRUE(lost.ranks[1].events.empty()) << "events of the run before";
  EXPECT_TRUE(std::filesystem::exists(records_path(dir_ + "/0001", 1)));
  EXPECT_EQ(read_file(plan_path(dir_ + "/0010")), to_text(plans[9]));
}

TEST_F(ThreadHostsTest, AHangIsEndedAndTheRestGoesOn) {
  options_.jobs = 1;
  ASSERT_EQ(run({in_threads(make_impatient("hang:1", 2), 1), in_threads(make("good", 2), 2)}), 0);
  EXPECT_TRUE(end_of(outcomes_[0], "rank-1").past_deadline) << ends_text(outcomes_[0]);
  expect_own(outcomes_[1], 2);
}

TEST_F(ThreadHostsTest, AHostThatNeverAsksAgainIsReplaced) {
  options_.jobs = 1;
  std::vector<RunPlan> plans = {in_threads(make("idle", 2), 1), in_threads(make("good", 2), 2)};
  for (RunPlan& plan : plans) plan.scenario.timeouts.run_ms = 500;
  ASSERT_EQ(run(plans), 0);
  expect_own(outcomes_[0], 1);
  expect_own(outcomes_[1], 2);
}

TEST_F(ThreadHostsTest, AHostThatNeverEndsIsEnded) {
  RunPlan plan = in_threads(make("idle", 2), 1);
  plan.scenario.timeouts.run_ms = 500;
  expect_own(run_one(plan), 1);
}

TEST_F(ThreadHostsTest, LongPlansAndEvidencePass) {
  RunPlan plan = in_threads(make("good", 64), 5);
  plan.set.emplace_back("/what", std::string(400'000, 'x'));
  const RunOutcome& outcome = run_one(plan);
  expect_own(outcome, 5);
}

TEST_F(ThreadHostsTest, StandBesideRunsOfProcesses) {
  ASSERT_EQ(run({make("good", 2), in_threads(make("good", 2), 7), make("exit:0", 2)}), 0);
  ASSERT_EQ(outcomes_.size(), 3u);
  EXPECT_EQ(outcomes_[2].ends[0].exit_code, 7);
  expect_own(outcomes_[1], 7);
}

TEST_F(ThreadHostsTest, AnInterruptEndsThem) {
  std::thread user([&] {
    wait_until([&] { return processes_of(dir_).size() >= 2; });
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(run({in_threads(make("sleep:0", 2), 1), in_threads(make("sleep:0", 2), 1),
                 in_threads(make("good", 2), 1)}),
            SIGINT);
  user.join();
  EXPECT_LE(outcomes_.size(), 2u);
  for (const auto& [index, outcome] : outcomes_) EXPECT_TRUE(outcome.interrupted);
}

}  // namespace

}  // namespace lockstep
