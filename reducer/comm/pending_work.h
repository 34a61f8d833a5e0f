#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "reducer/communicator.h"

namespace lockstep {

// A CommWork that a backend completes: promise and future in one.
class PendingWork : public CommWork {
 public:
  PendingWork(std::string what, Deadline deadline) : what_(std::move(what)), deadline_(deadline) {}

  bool is_done() const override;
  // Gives up kGrace after the deadline even if the backend does not: it should have ended the work
  // at the deadline, with a better message. What the backend still does to it counts no more.
  void wait() override;
  // Has it ended by then, well or not? Blocks no longer.
  bool ends_by(Deadline moment);
  void on_done(std::function<void(std::exception_ptr)> callback) override;

  // Ends the work, calling back on this thread before any wait() returns: what a callback records
  // stands before what the waiting rank does next. Only the first call counts.
  void complete(std::exception_ptr error = nullptr);

  const std::string& what() const { return what_; }
  Deadline deadline() const { return deadline_; }

  static constexpr std::chrono::milliseconds kGrace{2000};

 private:
  enum class State { pending, completing, done };
  const std::string what_;
  const Deadline deadline_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::pending;
  std::exception_ptr error_;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

// A CommError as an exception_ptr, with the operation in front: "all_reduce of 8 float32: ...".
std::exception_ptr comm_error(CommFailure kind, const std::string& what, const std::string& why,
                              const CommFacts& facts = {});
std::exception_ptr comm_error(const std::string& what, const CommError& why);

}  // namespace lockstep
