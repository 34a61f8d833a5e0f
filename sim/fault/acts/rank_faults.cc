#include "sim/fault/acts/rank_faults.h"

#include <dirent.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

timespec as_timespec(double duration_ms) {
  const auto ns = static_cast<int64_t>(std::llround(duration_ms * 1e6));
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

[[noreturn]] void wait_for_nobody() {
  sem_t never;
  ::sem_init(&never, 0, 0);
  while (true) ::sem_wait(&never);
}

// Of this process from now on nothing is left but a signal's end.
[[noreturn]] void die_of(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  wait_for_nobody();
}

// Memory is taken until the limit says no. The limit does not stay: the rank still has to report.
[[noreturn]] void run_out_of_memory() {
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  rlimit tight = before;
  tight.rlim_cur = 1;  // more is in use already: every further page is refused
  ::setrlimit(RLIMIT_AS, &tight);
  std::vector<std::unique_ptr<char[]>> held;
  try {
    while (true) held.push_back(std::make_unique<char[]>(size_t{64} << 20));
  } catch (const std::bad_alloc&) {
    ::setrlimit(RLIMIT_AS, &before);
    throw;
  }
}

bool is_tcp(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
  sockaddr_storage peer{};
  size = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  return peer.ss_family == AF_INET || peer.ss_family == AF_INET6;
}

}  // namespace

void pause_for(double duration_ms) {
  timespec left = as_timespec(duration_ms);
  while (::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

void stop_for(double duration_ms) {
  if (duration_ms > 0) {
    const timespec left = as_timespec(duration_ms);
    const pid_t self = ::getpid();
    const pid_t helper = ::fork();
    if (helper == 0) {  // of a process with threads: system calls only
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::syscall(SYS_close_range, 0U, ~0U, 0U);  // peers must see at once if the parent dies
      const auto parent = static_cast<int>(::syscall(SYS_pidfd_open, self, 0));
      ::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, nullptr);
      ::syscall(SYS_pidfd_send_signal, parent, SIGCONT, nullptr, 0);
      ::_exit(0);
    }
    if (helper < 0) throw std::runtime_error("fault stop: no process to continue this one");
  }
  ::raise(SIGSTOP);
}

void reset_connections() {
  DIR* dir = ::opendir("/proc/self/fd");
  if (dir == nullptr) throw std::runtime_error("fault reset: /proc/self/fd cannot be read");
  while (const dirent* entry = ::readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && is_tcp(fd)) ::shutdown(fd, SHUT_RDWR);
  }
  ::closedir(dir);
}

void act_out(const Act& act) {
  switch (act.fault->kind) {
    case FaultKind::stop:
      return stop_for(act.duration_ms);
    case FaultKind::kill:
    case FaultKind::terminate:
    case FaultKind::interrupt:
    case FaultKind::segfault:
    case FaultKind::abort:
      die_of(*row_of(act.fault->kind).ends_by);
    case FaultKind::exception:
      throw std::runtime_error("an exception that fault exception throws");
    case FaultKind::deadlock:
      wait_for_nobody();
    case FaultKind::exit:
      ::_exit(static_cast<int>(act.fault->options.integer("code")));
    case FaultKind::out_of_memory:
      run_out_of_memory();
    case FaultKind::reset:
      return reset_connections();
    case FaultKind::stall:
    case FaultKind::periodic_pause:
    case FaultKind::slow_layer:
    case FaultKind::slow_loader:
    case FaultKind::late_start:
    case FaultKind::slow_constructor:
      return pause_for(act.duration_ms);
    default:
      return;  // what its own place acts out: the communicator, a layer, the rank's options
  }
}

RankFaults::RankFaults(const Scenario& scenario, int64_t rank, Recorder& recorder)
    : scenario_(scenario),
      schedule_(scenario, rank),
      recorder_(recorder),
      any_(!scenario.faults.empty()),
      done_(scenario.faults.size()) {}

bool RankFaults::acts(const Fault& fault) const {
  return primary_ || class_of(fault) == FaultClass::misconfiguration;
}

// Not a second time where its kind has no way back or none that is asked for.
bool RankFaults::act_once(const Act& act) {
  if (!acts_once(*act.fault)) return true;
  const bool fresh = !done_[act.index];
  done_[act.index] = true;
  return fresh;
}

void RankFaults::receipt(const Act& act) {
  recorder_.append(EventKind::receipt, kFirstFault + static_cast<int32_t>(act.index),
                   static_cast<uint64_t>(act.duration_ms * 1e6));
}

void RankFaults::enter(Phase phase) {
  recorder_.enter(phase);
  if (!any_) return;
  for (const Act& act : schedule_.at_phase(phase, recorder_.step())) {
    if (!acts(*act.fault) || class_of(*act.fault) == FaultClass::misconfiguration || !act_once(act))
      continue;
    receipt(act);
    act_out(act);
  }
}

bool RankFaults::at_bucket(int64_t bucket) {
  if (!any_) return false;
  bool skipped = false;
  for (const Act& act : schedule_.at_bucket(bucket, recorder_.step())) {
    if (!acts(*act.fault) || !act_once(act)) continue;
    receipt(act);
    skipped = skipped || act.fault->kind == FaultKind::skip_collective;
    act_out(act);
  }
  return skipped;
}

void RankFaults::at_layer(const std::string& layer) {
  if (!any_ || !primary_) return;
  for (const Act& act : schedule_.at_layer(layer, recorder_.step())) {
    receipt(act);
    act_out(act);
  }
}

const Fault* RankFaults::standing(FaultKind kind) {
  if (!any_) return nullptr;
  // Those of the rendezvous have step 0.
  for (const int64_t step : {std::max<int64_t>(recorder_.step(), 1), int64_t{0}})
    for (const Act& act : schedule_.of_kind(kind, step)) {
      receipt(act);
      return act.fault;
    }
  return nullptr;
}

const Fault* RankFaults::in_step(FaultKind kind) {
  if (!any_) return nullptr;
  for (const Act& act : schedule_.of_kind(kind, recorder_.step())) {
    if (!acts(*act.fault)) continue;
    receipt(act);
    return act.fault;
  }
  return nullptr;
}

double RankFaults::slow_down() {
  if (!any_ || !primary_) return 1;
  for (const FaultKind kind : {FaultKind::slow, FaultKind::imbalance, FaultKind::wandering})
    for (const Act& act : schedule_.of_kind(kind, recorder_.step())) receipt(act);
  return schedule_.slowdown(recorder_.step());
}

std::vector<Act> RankFaults::acts_of(FaultKind kind) const {
  if (!any_ || !primary_) return {};
  return schedule_.of_kind(kind, recorder_.step());
}

bool RankFaults::any_of_class(FaultClass wanted) const {
  return std::any_of(scenario_.faults.begin(), scenario_.faults.end(),
                     [&](const Fault& fault) { return class_of(fault) == wanted; });
}

}  // namespace lockstep
