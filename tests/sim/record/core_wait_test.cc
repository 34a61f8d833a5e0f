#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "scenarios/base/clock.h"
#include "sim/record/core_wait.h"
#include "sim/record/recorder.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

void use_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  ASSERT_EQ(::sched_setaffinity(0, sizeof cores, &cores), 0);
}

int own_core() {
  const int core = ::sched_getcpu();
  return core < 0 ? 0 : core;
}

// Wants one core for itself as long as it lives.
class Rival {
 public:
  explicit Rival(int core) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    use_core(core);
    while (true) {
    }
  }
  ~Rival() {
    // A child that has not been waited for: its number is nobody else's.
    if (pid_ > 0 && ::sigqueue(pid_, SIGKILL, {}) == 0) ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

void spin_ms(int64_t ms) {
  const int64_t until = now_ns() + ms * 1'000'000;
  while (now_ns() < until) {
  }
}

// In a thread, so that nothing else is bound to the core afterwards.
template <class Body>
void on_one_core(Body body) {
  std::thread([&] {
    const int core = own_core();
    use_core(core);
    body(core);
  }).join();
}

TEST(CoreWait, IsWhatTheOthersOfACoreTake) {
  on_one_core([](int core) {
    const Rival one(core), two(core);
    const auto wait = CoreWait::of_this_thread();
    const int64_t before = wait->own_ns();
    spin_ms(300);
    // Of three that want one core each has a third: 200 ms, and more beside other work.
    EXPECT_GE(wait->own_ns() - before, 100'000'000);
    EXPECT_LE(wait->own_ns() - before, 301'000'000);
  });
}

TEST(CoreWait, SleepingIsNotWaitingForACore) {
  const auto wait = CoreWait::of_this_thread();
  const int64_t before = wait->own_ns(), began = now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const int64_t slept = now_ns() - began;
  EXPECT_LE(wait->own_ns() - before, slept - 199'000'000);
}

TEST(CoreWait, AMainThreadSpeaksForTheOthersOfItsProcess) {
  const auto wait = CoreWait::of_this_thread();
  const int64_t own = wait->own_ns(), before = wait->others_ns();
  on_one_core([&](int core) {
    const Rival one(core), two(core);
    spin_ms(150);
    EXPECT_EQ(CoreWait::of_this_thread()->others_ns(), 0) << "a thread speaks for itself";
    wait->others_ns();  // it is seen before it ends
  });
  EXPECT_GE(wait->others_ns() - before, 50'000'000) << "also when it has ended";
  EXPECT_GE(core_wait_of_main_thread(::getpid()), own);
  EXPECT_EQ(core_wait_of_main_thread(0), 0);
}

TEST(CoreWait, IsRecordedWithPhasesAndEndsOfSteps) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/rank-0.records";
  RankRecords records;
  on_one_core([&](int core) {
    auto recorder = Recorder::create(path, 0, 1, 100);
    recorder->enter(Phase::rendezvous);
    recorder->measure_core_wait();
    recorder->enter(Phase::load);
    const Rival one(core), two(core);
    spin_ms(150);
    recorder->end_step();
  });
  std::string why;
  ASSERT_TRUE(read_records(path, &records, &why)) << why;
  ASSERT_EQ(records.events.size(), 3u);
  EXPECT_EQ(records.events[0].value, 0u) << "not measured";
  EXPECT_EQ(records.events[2].kind, static_cast<uint16_t>(EventKind::step_end));
  EXPECT_GE(records.events[2].value - records.events[1].value, 50'000'000u);
}

TEST(CoreWait, OfThreadsThatDoTheMainOnesWorkIsTheMainOnes) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/rank-0.records";
  auto recorder = Recorder::create(path, 0, 1, 100);
  recorder->add_core_wait(7'000'000'000);
  EXPECT_EQ(recorder->core_wait_ns(), 0u) << "not measured";
  recorder->measure_core_wait();
  EXPECT_GE(recorder->core_wait_ns(), 7'000'000'000u);
}

}  // namespace

}  // namespace lockstep
