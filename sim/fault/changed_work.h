#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

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

}  // namespace lockstep
