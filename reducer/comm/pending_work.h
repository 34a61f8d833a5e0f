#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reducer/comm/collective.h"
#include "reducer/communicator.h"
#include "scenarios/base/clock.h"

namespace lockstep {

// One thread that runs tasks in the order in which they were posted.
class CommThread {
 public:
  CommThread() : thread_([this] { run(); }) {}
  // Runs what was posted, then ends.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  void post(std::function<void()> task);

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

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

// Blocks until all ranks of the group have called this or the deadline has passed. A Gloo context
// that is torn down earlier takes data with it that slow peers have not read yet.
void wait_until_all_close(Store& store, const std::string& prefix, int64_t world_size,
                          Deadline deadline) noexcept;

// Waits until the thread has run what was posted so far; false past the deadline.
bool drained(CommThread& thread, Deadline deadline) noexcept;

// Runs blocking collectives, one after the other in the order of the calls, on a thread of its own.
// After a failure, or once it is closed, it takes no more; what is queued ends as closed. A group
// of one rank needs no thread. Whoever derives from it resets `thread_` before what attempt() uses.
class QueuedCommunicator : public CollectiveCommunicator {
 public:
  using CollectiveCommunicator::CollectiveCommunicator;

 protected:
  CommWorkPtr submit(CollectiveCall call) final;
  // On the thread. Returns the error, with `what` in front, or nullptr.
  virtual std::exception_ptr attempt(const CollectiveCall& call, const std::string& what) = 0;
  // On the thread, when a collective has failed, before those who wait for it learn of it.
  virtual void give_up() noexcept {}

  std::atomic<bool> failed_{false};  // or closed
  std::atomic<int64_t> outstanding_{0};
  std::unique_ptr<CommThread> thread_;

 private:
  void run(const CollectiveCall& call, PendingWork& work);
};

// What `action` throws, with `what` in front; anything but a CommError stands for rejected.
std::exception_ptr error_of(const std::string& what, const std::function<void()>& action);

// Says that this rank closes without waiting, after a failure: nobody needs to wait for it.
void close_without_waiting(Store& store, const std::string& prefix) noexcept;

}  // namespace lockstep
