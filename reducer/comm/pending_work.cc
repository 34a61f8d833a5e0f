#include "reducer/comm/pending_work.h"

#include <exception>
#include <memory>

namespace lockstep {

CommThread::~CommThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CommThread::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void CommThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
  }
}

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

std::exception_ptr error_of(const std::string& what, const std::function<void()>& action) {
  try {
    action();
    return nullptr;
  } catch (const CommError& failure) {
    return comm_error(what, failure);
  } catch (const std::exception& failure) {
    return comm_error(CommFailure::rejected, what, failure.what());
  }
}

CommWorkPtr QueuedCommunicator::submit(CollectiveCall call) {
  const std::string what = describe(call);
  if (failed_) throw CommError(CommFailure::closed, what + ": the communicator is closed");
  auto work = std::make_shared<PendingWork>(what, call.deadline);
  if (world_size() == 1) {
    run_alone(call);
    work->complete();
    return work;
  }
  ++outstanding_;
  thread_->post([this, work, call = std::move(call)] {
    run(call, *work);
    --outstanding_;
  });
  return work;
}

void QueuedCommunicator::run(const CollectiveCall& call, PendingWork& work) {
  const std::exception_ptr error =
      failed_ ? comm_error(CommFailure::closed, work.what(), "an earlier collective failed")
              : attempt(call, work.what());
  if (error) {
    failed_ = true;
    give_up();
  }
  work.complete(error);
}

void wait_until_all_close(Store& store, const std::string& prefix, int64_t world_size,
                          Deadline deadline) noexcept {
  try {
    if (store.add(prefix + "closing", 1) == world_size) store.set(prefix + "closed", "1");
    store.get(prefix + "closed", deadline);
  } catch (const std::exception&) {
    // Past the deadline, or the store is gone: a peer has failed, there is nobody to wait for.
  }
}

bool drained(CommThread& thread, Deadline deadline) noexcept {
  auto last = std::make_shared<PendingWork>("close", deadline);
  thread.post([last] { last->complete(); });
  return last->ends_by(deadline);
}

void close_without_waiting(Store& store, const std::string& prefix) noexcept {
  try {
    store.set(prefix + "closed", "1");
  } catch (const std::exception&) {
    // The store is gone, and with it everyone who would have waited.
  }
}

}  // namespace lockstep
