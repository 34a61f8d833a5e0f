#include "reducer/comm/pending_work.h"

namespace lockstep {

bool PendingWork::is_done() const {
  std::lock_guard lock(mutex_);
  return state_ == State::done;
}

void PendingWork::wait() {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return state_ == State::done; };
  if (deadline_ == kNoDeadline) {
    changed_.wait(lock, is_over);
  } else if (!changed_.wait_until(lock, deadline_ + kGrace, is_over)) {
    lock.unlock();
    complete(comm_error(CommFailure::timeout, what_, "no answer past its deadline"));
    lock.lock();
    changed_.wait(lock, is_over);  // another thread may be about to call back
  }
  if (error_) std::rethrow_exception(error_);
}

bool PendingWork::ends_by(Deadline moment) {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return state_ == State::done; };
  if (moment != kNoDeadline) return changed_.wait_until(lock, moment, is_over);
  changed_.wait(lock, is_over);
  return true;
}

void PendingWork::on_done(std::function<void(std::exception_ptr)> callback) {
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::done) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(error_);
}

void PendingWork::complete(std::exception_ptr error) {
  std::unique_lock lock(mutex_);
  if (state_ != State::pending) return;
  state_ = State::completing;
  error_ = std::move(error);
  while (!callbacks_.empty()) {
    const auto callbacks = std::move(callbacks_);
    callbacks_.clear();
    lock.unlock();
    for (const auto& callback : callbacks) callback(error_);
    lock.lock();
  }
  state_ = State::done;
  changed_.notify_all();
}

std::exception_ptr comm_error(CommFailure kind, const std::string& what, const std::string& why,
                              const CommFacts& facts) {
  return std::make_exception_ptr(CommError(kind, what + ": " + why, facts));
}

std::exception_ptr comm_error(const std::string& what, const CommError& why) {
  return comm_error(why.kind(), what, why.what(), why.facts());
}

}  // namespace lockstep
