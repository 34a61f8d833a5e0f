#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>

#include "reducer/communicator.h"

namespace lockstep {

// Where inputs may be uneven (ReducerOptions::join) every rank says before each forward whether it
// has a batch. One all_gather answers what DDP's join asks in three all-reduces: how many ranks
// still have one, which of them gives its buffers, and whether the backward will be synchronized.
// One thread starts; wait() and what it knows may be asked on another.
class JoinPoll {
 public:
  enum class Answer : int64_t { left, leaving, unsynchronized, synchronized };

  JoinPoll(Communicator& communicator, std::chrono::milliseconds timeout);

  // Collective; returns at once.
  void start(Answer own);
  // Blocks until all ranks have answered. Throws CommError.
  void wait() { work_->wait(); }
  const CommWorkPtr& work() const { return work_; }
  // Of the last start(): [world_size], filled when its work is done; the next start() takes others.
  const at::Tensor& answers() const { return answers_; }

  // Of the last answers, once they are there. Ranks that have a batch:
  int64_t active() const { return active(answers_); }
  static int64_t active(const at::Tensor& answers);
  // The largest of them. Where none has: the largest of those that are leaving.
  int64_t root() const;
  bool synchronizes() const;

 private:
  int64_t largest_with(Answer least) const;

  Communicator& communicator_;
  const std::chrono::milliseconds timeout_;
  at::Tensor own_, answers_;  // int64: [1], [world_size]
  CommWorkPtr work_;
};

}  // namespace lockstep
