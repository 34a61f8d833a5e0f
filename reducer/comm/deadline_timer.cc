#include "reducer/comm/deadline_timer.h"

namespace lockstep {

void DeadlineTimer::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

DeadlineTimer::Id DeadlineTimer::at(Deadline deadline, std::function<void()> function) {
  std::lock_guard lock(mutex_);
  const Id id{deadline, next_++};
  if (deadline == kNoDeadline || stop_) return id;
  waiting_.emplace(id, std::move(function));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
  } else if (deadline < asleep_until_) {
    changed_.notify_all();
  }
  return id;
}

void DeadlineTimer::cancel(const Id& id) {
  std::lock_guard lock(mutex_);
  waiting_.erase(id);
}

void DeadlineTimer::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (waiting_.empty()) {
      asleep_until_ = kNoDeadline;
      changed_.wait(lock);
      continue;
    }
    const auto first = waiting_.begin();
    if (first->first.first > Clock::now()) {
      asleep_until_ = first->first.first;
      changed_.wait_until(lock, asleep_until_);
      continue;
    }
    const auto function = std::move(first->second);
    waiting_.erase(first);
    lock.unlock();
    function();
    lock.lock();
  }
}

}  // namespace lockstep
