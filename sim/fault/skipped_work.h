#pragma once

#include "reducer/communicator.h"

namespace lockstep {

// A collective that never happened but says that it did.
class SkippedWork : public CommWork {
 public:
  bool is_done() const override { return true; }
  void wait() override {}
  void on_done(std::function<void(std::exception_ptr)> callback) override { callback(nullptr); }
};

}  // namespace lockstep
