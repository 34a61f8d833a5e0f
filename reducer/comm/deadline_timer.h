#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "scenarios/base/clock.h"

namespace lockstep {

// Calls functions at their deadlines unless they are cancelled before. Its thread starts with the
// first finite deadline. Thread-safe; functions run on the timer's thread and must not block.
class DeadlineTimer {
 public:
  DeadlineTimer() = default;
  ~DeadlineTimer() { stop(); }
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  using Id = std::pair<Deadline, uint64_t>;
  Id at(Deadline deadline, std::function<void()> function);
  // A function that is running already is not waited for.
  void cancel(const Id& id);
  // Blocks until no function runs; none will run after. One thread calls it.
  void stop();

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Id, std::function<void()>> waiting_;
  Deadline asleep_until_ = kNoDeadline;
  uint64_t next_ = 1;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep
