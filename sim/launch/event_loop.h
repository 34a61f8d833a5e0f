#pragma once

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <system_error>
#include <unordered_map>

#include "scenarios/base/file.h"

namespace lockstep {

// Waits for many file descriptors at once and calls a handler for each that is readable or closed
// by its other side. One thread. A handler may be called once more after the descriptor has
// nothing to read, so it must not block; it may watch and forget any descriptor, its own included.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  EventLoop();  // throws std::system_error
  void watch(int fd, Handler handler);
  // Whether the handler of a watched descriptor is also called when it can be written to.
  void watch_writable(int fd, bool on);
  // Calls the handler once, when nobody is left who could read what is written to `fd`. Ignores
  // descriptors without another side, as files.
  void watch_hang_up(int fd, Handler handler);
  void forget(int fd);  // before the descriptor is closed
  // Returns after the handlers of what happened, or after `timeout`.
  void wait(std::chrono::milliseconds timeout);

 private:
  UniqueFd epoll_;
  std::unordered_map<int, std::shared_ptr<Handler>> handlers_;
};

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
