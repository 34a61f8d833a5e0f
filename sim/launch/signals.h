#pragma once

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "scenarios/base/unique_fd.h"

namespace lockstep {

// SIGINT and SIGTERM come through a descriptor while this lives; then as before.
class Signals {
 public:
  Signals() {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &ours, &before_);
    fd_.reset(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_.valid()) throw std::system_error(errno, std::generic_category(), "signalfd");
    // An ignored SIGCHLD, as some parents leave it, would make the kernel reap our children.
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &plain, &child_before_);
  }
  ~Signals() {
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }
  int next() {  // 0: none
    signalfd_siginfo info;
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  sigset_t before_;
  struct sigaction child_before_ {};
  UniqueFd fd_;
};

}  // namespace lockstep
