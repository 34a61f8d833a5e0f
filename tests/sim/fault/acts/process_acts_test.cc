#include "sim/fault/acts/process_acts.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

#include "scenarios/base/clock.h"

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

}  // namespace
}  // namespace lockstep
