#pragma once

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "scenarios/base/file.h"

namespace lockstep {

// What asks a program to end comes through a descriptor while this lives; then as before. A signal
// that is ignored, as under nohup, stays so.
class Signals {
 public:
  Signals() {
    sigset_t ours;
    sigemptyset(&ours);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU})
      if (!is_ignored(number)) sigaddset(&ours, number);
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
  static bool is_ignored(int number) {
    struct sigaction now {};
    return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  }

  sigset_t before_;
  struct sigaction child_before_ {};
  UniqueFd fd_;
};

}  // namespace lockstep
