#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "reducer/communicator.h"

namespace lockstep {

// Says that it is done, whatever the collective under way does; keeps it alive.
class UnawaitedWork : public CommWork {
 public:
  explicit UnawaitedWork(CommWorkPtr inner) : inner_(std::move(inner)) {}
  bool is_done() const override { return true; }
  void wait() override {}
  void on_done(std::function<void(std::exception_ptr)> callback) override { callback(nullptr); }

 private:
  const CommWorkPtr inner_;
};

}  // namespace lockstep
