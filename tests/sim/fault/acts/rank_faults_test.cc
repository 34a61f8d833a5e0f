#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>

#include "scenarios/base/clock.h"
#include "sim/fault/acts/rank_faults.h"
#include "tests/scenarios/fault_of.h"

namespace lockstep {
namespace {

// Wait status of a process in which `kind` acts.
int status_after(const Fault& fault, double duration_ms = 0) {
  const pid_t child = ::fork();
  if (child == 0) {
    act_out({0, &fault, duration_ms});
    ::_exit(77);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(ProcessActs, EndTheProcessBySignalOrCode) {
  for (const auto& [kind, signal] :
       {std::pair(FaultKind::kill, SIGKILL), std::pair(FaultKind::terminate, SIGTERM),
        std::pair(FaultKind::interrupt, SIGINT), std::pair(FaultKind::segfault, SIGSEGV),
        std::pair(FaultKind::abort, SIGABRT)}) {
    const int status = status_after({kind, {}});
    ASSERT_TRUE(WIFSIGNALED(status)) << to_word(kind);
    EXPECT_EQ(WTERMSIG(status), signal) << to_word(kind);
  }
  Fault exit{FaultKind::exit, {}};
  exit.options.set("code", int64_t{3});
  EXPECT_EQ(WEXITSTATUS(status_after(exit)), 3);
}

TEST(ProcessActs, AStopEndsAfterItsTime) {
  const int64_t begin = now_ns();
  const int status = status_after({FaultKind::stop, {}}, 100);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 77);
  EXPECT_GE(now_ns() - begin, 100'000'000);
}

TEST(ProcessActs, AStopWithoutAnEndStays) {
  const Fault stop{FaultKind::stop, {}};
  const pid_t child = ::fork();
  if (child == 0) {
    act_out({0, &stop, 0});
    ::_exit(77);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status));
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
}

TEST(ProcessActs, ThrowWhatTheySay) {
  const Fault exception{FaultKind::exception, {}};
  EXPECT_THROW(act_out({0, &exception, 0}), std::runtime_error);
}

#ifndef __SANITIZE_ADDRESS__  // which dies itself where it gets no more address space
TEST(ProcessActs, OutOfMemoryIsThrownAndItsLimitDoesNotStay) {
  const Fault memory{FaultKind::out_of_memory, {}};
  EXPECT_THROW(act_out({0, &memory, 0}), std::bad_alloc);
  EXPECT_NO_THROW(std::string(1 << 20, 'x'));
}
#endif

TEST(ProcessActs, AnotherKindDoesNothing) {
  const Fault other{FaultKind::slow, {}};
  act_out({0, &other, 0});
}

// Rank 1 of 3 with one fault, and what it records.
class OneFault : public testing::Test {
 protected:
  void begin(Fault part) {
    scenario_.world_size = 3;
    scenario_.steps = 4;
    scenario_.faults = {std::move(part)};
    path_ = testing::TempDir() + "/rank_faults." + std::to_string(::getpid());
    recorder_ = Recorder::create(path_, 1, 3, 4096);
    recorder_->set_step(1);
    faults_.emplace(scenario_, 1, *recorder_);
  }
  ~OneFault() override { ::unlink(path_.c_str()); }

  std::vector<Event> of_kind(EventKind kind) const {
    RankRecords records;
    std::string why;
    EXPECT_TRUE(read_records(path_, &records, &why)) << why;
    std::erase_if(records.events,
                  [&](const Event& e) { return static_cast<EventKind>(e.kind) != kind; });
    return records.events;
  }

  Scenario scenario_;
  std::string path_;
  std::unique_ptr<Recorder> recorder_;
  std::optional<RankFaults> faults_;
};

TEST_F(OneFault, LeavesAReceiptBeforeItActs) {
  begin(fault_of(FaultKind::exception, {{"rank", int64_t{1}}, {"step", int64_t{2}}}));
  faults_->enter(Phase::backward);
  EXPECT_TRUE(of_kind(EventKind::receipt).empty());
  recorder_->set_step(2);
  EXPECT_THROW(faults_->enter(Phase::backward), std::runtime_error);
  ASSERT_EQ(of_kind(EventKind::receipt).size(), 1u);
  EXPECT_EQ(of_kind(EventKind::receipt)[0].subject, kFirstFault);
  EXPECT_EQ(of_kind(EventKind::phase_begin).size(), 2u) << "the phase has begun";
}

TEST_F(OneFault, WithNoWayBackActsOnceHoweverManyMicroBatches) {
  begin(fault_of(FaultKind::exception, {{"rank", int64_t{1}}}));
  EXPECT_THROW(faults_->enter(Phase::backward), std::runtime_error);
  EXPECT_NO_THROW(faults_->enter(Phase::backward));
}

TEST_F(OneFault, ThatDelaysActsInThePrimaryRunOnly) {
  begin(fault_of(FaultKind::stall, {{"phase", std::string("forward")}, {"duration_ms", 20.0}}));
  const int64_t start = now_ns();
  faults_->enter(Phase::forward);
  EXPECT_GE(now_ns() - start, 20'000'000);
  EXPECT_EQ(of_kind(EventKind::receipt)[0].value, 20'000'000u);
  faults_->begin_double_run();
  faults_->enter(Phase::forward);
  EXPECT_EQ(of_kind(EventKind::receipt).size(), 1u);
}

TEST_F(OneFault, OfConfigurationActsInBoth) {
  begin(fault_of(FaultKind::skip_collective, {{"rank", int64_t{1}}, {"bucket", int64_t{1}}}));
  EXPECT_FALSE(faults_->at_bucket(0));
  EXPECT_TRUE(faults_->at_bucket(1));
  faults_->begin_double_run();
  EXPECT_TRUE(faults_->at_bucket(1));
  EXPECT_EQ(of_kind(EventKind::receipt).size(), 2u);
}

TEST_F(OneFault, OfAnotherRankIsNotThisOnes) {
  begin(fault_of(FaultKind::mismatched_dtype,
                 {{"rank", int64_t{2}}, {"dtype", std::string("float64")}}));
  EXPECT_EQ(faults_->standing(FaultKind::mismatched_dtype), nullptr);
  begin(fault_of(FaultKind::mismatched_dtype,
                 {{"rank", int64_t{1}}, {"dtype", std::string("float64")}}));
  EXPECT_NE(faults_->standing(FaultKind::mismatched_dtype), nullptr);
}

TEST_F(OneFault, ThatSlowsTellsByHowMuchWithAReceiptAStep) {
  begin(fault_of(FaultKind::slow,
                 {{"factor", 1.5}, {"step", int64_t{2}}, {"last_step", int64_t{3}}}));
  EXPECT_EQ(faults_->slow_down(), 1);
  recorder_->set_step(2);
  EXPECT_EQ(faults_->slow_down(), 1.5);
  recorder_->set_step(3);
  EXPECT_EQ(faults_->slow_down(), 1.5);
  EXPECT_EQ(of_kind(EventKind::receipt).size(), 2u);
  faults_->begin_double_run();
  EXPECT_EQ(faults_->slow_down(), 1);
}

}  // namespace

}  // namespace lockstep
