#pragma once

#include <chrono>
#include <functional>
#include <memory>
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

}  // namespace lockstep
