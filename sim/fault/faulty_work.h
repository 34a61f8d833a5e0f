#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "reducer/communicator.h"

namespace lockstep {

// A collective whose result is changed, once, before anyone sees it.
class ChangedWork : public CommWork {
 public:
  ChangedWork(CommWorkPtr inner, std::function<void()> change)
      : inner_(std::move(inner)), state_(std::make_shared<State>()) {
    state_->change = std::move(change);
  }

  bool is_done() const override { return inner_->is_done(); }

  void wait() override {
    inner_->wait();
    state_->apply();
  }

  void on_done(std::function<void(std::exception_ptr)> callback) override {
    inner_->on_done([state = state_, callback = std::move(callback)](std::exception_ptr error) {
      if (!error) state->apply();
      callback(error);
    });
  }

 private:
  struct State {
    std::once_flag once;
    std::function<void()> change;
    void apply() { std::call_once(once, change); }
  };
  CommWorkPtr inner_;
  std::shared_ptr<State> state_;
};

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

// A collective that says that it is done: one that never happened, or one under way, which is kept
// alive.
class SkippedWork : public CommWork {
 public:
  explicit SkippedWork(CommWorkPtr under_way = nullptr) : under_way_(std::move(under_way)) {}
  bool is_done() const override { return true; }
  void wait() override {}
  void on_done(std::function<void(std::exception_ptr)> callback) override { callback(nullptr); }

 private:
  const CommWorkPtr under_way_;
};

}  // namespace lockstep
