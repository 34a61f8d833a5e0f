#include "golden/lock_step.h"

#include <ATen/ops/stack.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

struct LeftAlone : std::runtime_error {
  using runtime_error::runtime_error;
};

class Meeting {
 public:
  explicit Meeting(int64_t ranks) : rows_(static_cast<size_t>(ranks)) {}

  at::Tensor gather(int64_t rank, const at::Tensor& row) {
    std::unique_lock lock(mutex_);
    rows_[static_cast<size_t>(rank)] = row;
    const int64_t now = meeting_;
    if (++arrived_ == rows_.size()) {
      all_ = at::stack(rows_);
      arrived_ = 0;
      ++meeting_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return meeting_ > now || somebody_left_; });
    if (meeting_ == now) throw LeftAlone("a rank ended before the others");
    return all_;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    somebody_left_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> rows_;
  at::Tensor all_;  // of the last meeting: nobody comes to the next before all have it
  size_t arrived_ = 0;
  int64_t meeting_ = 0;
  bool somebody_left_ = false;
};

class RankOfMeeting : public BatchGroup {
 public:
  RankOfMeeting(Meeting& meeting, int64_t rank) : meeting_(meeting), rank_(rank) {}
  at::Tensor all_gather(const at::Tensor& row) override { return meeting_.gather(rank_, row); }

 private:
  Meeting& meeting_;
  const int64_t rank_;
};

void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr alone;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const LeftAlone&) {
      alone = error;
    }
  }
  if (alone) std::rethrow_exception(alone);
}

}  // namespace

void run_in_lock_step(int64_t ranks, const std::function<void(int64_t, BatchGroup&)>& body) {
  Meeting meeting(ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      RankOfMeeting group(meeting, rank);
      try {
        body(rank, group);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
      meeting.leave();
    });
  for (std::thread& thread : threads) thread.join();
  rethrow_first(errors);
}

}  // namespace lockstep
