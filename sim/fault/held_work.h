#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "reducer/communicator.h"

namespace lockstep {

// A collective that is not called yet, though it says that it is under way: launch() calls it, and
// so does waiting for it. Thread-safe.
class HeldWork : public CommWork {
 public:
  explicit HeldWork(std::function<CommWorkPtr()> start) : start_(std::move(start)) {}

  void launch() {
    const std::lock_guard lock(mutex_);
    if (work_ != nullptr) return;
    work_ = start_();
    for (auto& callback : callbacks_) work_->on_done(std::move(callback));
    callbacks_.clear();
  }

  bool is_done() const override {
    const std::lock_guard lock(mutex_);
    return work_ != nullptr && work_->is_done();
  }

  void wait() override {
    launch();
    work_->wait();
  }

  void on_done(std::function<void(std::exception_ptr)> callback) override {
    std::unique_lock lock(mutex_);
    if (work_ == nullptr) return callbacks_.push_back(std::move(callback));
    lock.unlock();
    work_->on_done(std::move(callback));
  }

 private:
  mutable std::mutex mutex_;
  const std::function<CommWorkPtr()> start_;
  CommWorkPtr work_;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

}  // namespace lockstep
