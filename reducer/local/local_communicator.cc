#include "reducer/local/local_communicator.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "reducer/comm/collective.h"
#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr uint64_t kStays = std::numeric_limits<uint64_t>::max();

std::string signature_of(const CollectiveCall& call, SumOrder order) {
  std::string text = describe(call);
  const bool rooted = call.operation == Operation::broadcast ||
                      call.operation == Operation::scatter || call.operation == Operation::gather;
  if (rooted) text += " from rank " + std::to_string(call.root);
  // Only a sum depends on the order.
  return is_sum(call.operation) ? text + " in order " + std::to_string(static_cast<int>(order))
                                : text;
}

int64_t only_one(const std::vector<int64_t>& ranks) {
  return ranks.size() == 1 ? ranks.front() : -1;
}

std::byte* bytes_at(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

void copy_range(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

void sum(const std::vector<at::Tensor>& tensors, SumOrder order) {
  for_summable(tensors[0].scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T*> ranks;
    for (const at::Tensor& tensor : tensors) ranks.push_back(static_cast<T*>(tensor.data_ptr()));
    const auto size = static_cast<int64_t>(tensors.size());
    sum_in_place(sum_ranges(order, size, tensors[0].numel(), sizeof(T)), ranks);
  });
}

void reduce_scatter(const std::vector<CollectiveCall>& calls, SumOrder order) {
  std::vector<at::Tensor> copies;
  for (const CollectiveCall& call : calls) copies.push_back(call.input.clone());
  sum(copies, order);
  const size_t part = calls[0].output.nbytes();
  for (size_t r = 0; r < calls.size(); ++r) {
    copy_range(bytes_at(calls[r].output), bytes_at(copies[0]) + r * part, part);
  }
}

void all_reduce(const std::vector<CollectiveCall>& calls, SumOrder order) {
  std::vector<at::Tensor> tensors;
  for (const CollectiveCall& call : calls) tensors.push_back(call.output);
  if (!tensors[0].is_sparse()) return sum(tensors, order);
  std::vector<at::Tensor> coalesced;
  for (const at::Tensor& tensor : tensors) coalesced.push_back(tensor.coalesce().clone());
  for (const at::Tensor& tensor : tensors) put_sparse_sum(coalesced, tensor);
}

class LocalCommunicator : public CollectiveCommunicator {
 public:
  LocalCommunicator(const CommOptions& options, std::shared_ptr<LocalHub> hub)
      : CollectiveCommunicator(options.rank, options.world_size),
        order_(sum_order(options.algorithm)),
        hub_(std::move(hub)) {}
  ~LocalCommunicator() override { leave(); }

  // Nothing of a peer's is lost when this rank goes: it does not wait.
  void close(Deadline) noexcept override { leave(); }

 protected:
  CommWorkPtr submit(CollectiveCall call) override {
    if (*closed_) {
      throw CommError(CommFailure::closed, describe(call) + ": the communicator is closed");
    }
    CommWorkPtr work = hub_->arrive(rank(), sequence_++, order_, std::move(call));
    work->on_done([closed = closed_](const std::exception_ptr& error) {
      if (error) *closed = true;
    });
    return work;
  }

 private:
  void leave() noexcept {
    if (std::exchange(left_, true)) return;
    *closed_ = true;
    hub_->leave(rank(), sequence_);
  }

  const SumOrder order_;
  const std::shared_ptr<LocalHub> hub_;
  const std::shared_ptr<std::atomic<bool>> closed_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<uint64_t> sequence_{0};
  bool left_ = false;
};

}  // namespace

LocalHub::LocalHub(int64_t world_size)
    : world_size_(world_size), left_at_(static_cast<size_t>(world_size), kStays) {}

std::shared_ptr<PendingWork> LocalHub::arrive(int64_t rank, uint64_t sequence, SumOrder order,
                                              CollectiveCall call) {
  auto work = std::make_shared<PendingWork>(describe(call), call.deadline);
  std::unique_lock lock(mutex_);
  Meeting& meeting = meetings_[sequence];
  if (meeting.arrived == 0) {
    meeting.calls.resize(left_at_.size());
    meeting.works.resize(left_at_.size());
    meeting.orders.resize(left_at_.size());
  }
  const auto place = static_cast<size_t>(rank);
  const Deadline deadline = call.deadline;
  meeting.calls[place] = std::move(call);
  meeting.works[place] = work;
  meeting.orders[place] = order;
  ++meeting.arrived;

  const Problem impossible = why_impossible(meeting, sequence);
  if (impossible.why.empty() && meeting.arrived < world_size_) {
    if (deadline < meeting.deadline) {
      timer_.cancel(meeting.timer);
      meeting.deadline = deadline;
      meeting.timer = timer_.at(deadline, [this, sequence] { expire(sequence); });
    }
    return work;
  }
  Meeting complete = std::move(meeting);
  meetings_.erase(sequence);
  if (complete.deadline != kNoDeadline) timer_.cancel(complete.timer);
  const Problem differ = impossible.why.empty() ? disagreement(complete) : Problem();
  if (!impossible.why.empty() || !differ.why.empty()) broken_ = true;
  ++ending_;
  lock.unlock();
  if (!impossible.why.empty()) {
    fail(complete, CommFailure::peer_lost, impossible);
  } else if (!differ.why.empty()) {
    fail(complete, CommFailure::rejected, differ);
  } else {
    finish(std::move(complete));
  }
  ended();
  return work;
}

void LocalHub::ended() {
  std::lock_guard lock(mutex_);
  if (--ending_ == 0) idle_.notify_all();
}

void LocalHub::leave(int64_t rank, uint64_t sequence) {
  std::vector<std::pair<Meeting, Problem>> failed;
  std::vector<std::shared_ptr<PendingWork>> own;
  {
    std::lock_guard lock(mutex_);
    left_at_[static_cast<size_t>(rank)] = sequence;
    for (auto it = meetings_.begin(); it != meetings_.end();) {
      const Problem problem = why_impossible(it->second, it->first);
      if (problem.why.empty()) {
        if (const auto& work = it->second.works[static_cast<size_t>(rank)]) own.push_back(work);
        ++it;
        continue;
      }
      broken_ = true;
      timer_.cancel(it->second.timer);
      failed.emplace_back(std::move(it->second), problem);
      it = meetings_.erase(it);
    }
  }
  for (const auto& [meeting, problem] : failed) fail(meeting, CommFailure::peer_lost, problem);
  for (const auto& work : own)
    work->complete(comm_error(CommFailure::closed, work->what(), "the communicator is closed"));
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return ending_ == 0; });
}

LocalHub::Problem LocalHub::why_impossible(const Meeting& meeting, uint64_t sequence) const {
  std::vector<int64_t> gone;
  for (size_t r = 0; r < left_at_.size(); ++r) {
    if (meeting.works[r] == nullptr && left_at_[r] <= sequence) {
      gone.push_back(static_cast<int64_t>(r));
    }
  }
  if (!gone.empty()) return {named_ranks(gone) + " left the group", only_one(gone)};
  return {broken_ ? "a peer gave up on an earlier collective" : ""};
}

void LocalHub::expire(uint64_t sequence) {
  Meeting meeting;
  {
    std::lock_guard lock(mutex_);
    const auto found = meetings_.find(sequence);
    if (found == meetings_.end()) return;
    meeting = std::move(found->second);
    meetings_.erase(found);
    broken_ = true;
    ++ending_;
  }
  std::vector<int64_t> missing;
  for (size_t r = 0; r < meeting.works.size(); ++r) {
    if (meeting.works[r] == nullptr) missing.push_back(static_cast<int64_t>(r));
  }
  fail(meeting, CommFailure::timeout,
       {"timed out waiting for " + named_ranks(missing), only_one(missing)});
  ended();
}

// The first that does not call what most call; where there is no majority, nobody's doing.
LocalHub::Problem LocalHub::disagreement(const Meeting& meeting) {
  std::vector<std::string> texts;
  for (size_t r = 0; r < meeting.calls.size(); ++r)
    texts.push_back(signature_of(meeting.calls[r], meeting.orders[r]));
  int64_t votes = 0;
  const size_t usual = most_common(texts, &votes);
  size_t odd = 0;
  while (odd < texts.size() && texts[odd] == texts[usual]) ++odd;
  if (odd == texts.size()) return {};
  const bool majority = 2 * static_cast<size_t>(votes) > texts.size();
  return {"rank " + std::to_string(odd) + " calls " + texts[odd] + ", rank " +
              std::to_string(usual) + " calls " + texts[usual],
          majority ? static_cast<int64_t>(odd) : -1};
}

void LocalHub::finish(Meeting meeting) {
  std::exception_ptr error;
  try {
    run_together(meeting.calls, meeting.orders[0]);
  } catch (const CommError&) {
    error = std::current_exception();
  }
  meeting.calls.clear();  // nobody but the ranks themselves keeps their tensors
  for (const auto& work : meeting.works) work->complete(error);
}

void LocalHub::fail(const Meeting& meeting, CommFailure kind, const Problem& problem) {
  for (const auto& work : meeting.works) {
    if (work != nullptr)
      work->complete(comm_error(kind, work->what(), problem.why, {.peer = problem.peer}));
  }
}

std::shared_ptr<LocalHub> make_local_hub(int64_t world_size) {
  return std::make_shared<LocalHub>(world_size);
}

void run_together(const std::vector<CollectiveCall>& calls, SumOrder order) {
  const auto root = static_cast<size_t>(calls[0].root);
  const bool moves =
      calls[0].operation != Operation::barrier && calls[0].operation != Operation::all_reduce;
  const size_t part = moves ? own_tensor(calls[0]).nbytes() : 0;
  const size_t ranks = calls.size();
  c10::NoGradGuard no_grad;
  switch (calls[0].operation) {
    case Operation::barrier:
      return;
    case Operation::all_reduce:
      return all_reduce(calls, order);
    case Operation::reduce_scatter:
      return reduce_scatter(calls, order);
    case Operation::broadcast:
      for (size_t r = 0; r < ranks; ++r) {
        copy_range(bytes_at(calls[r].output), bytes_at(calls[root].output), part);
      }
      return;
    case Operation::all_gather:
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t q = 0; q < ranks; ++q) {
          copy_range(bytes_at(calls[r].output) + q * part, bytes_at(calls[q].input), part);
        }
      }
      return;
    case Operation::scatter:
      for (size_t r = 0; r < ranks; ++r) {
        copy_range(bytes_at(calls[r].output), bytes_at(calls[root].input) + r * part, part);
      }
      return;
    case Operation::gather:
      for (size_t r = 0; r < ranks; ++r) {
        copy_range(bytes_at(calls[root].output) + r * part, bytes_at(calls[r].input), part);
      }
      return;
    case Operation::all_to_all:
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t q = 0; q < ranks; ++q) {
          copy_range(bytes_at(calls[r].output) + q * (part / ranks),
                     bytes_at(calls[q].input) + r * (part / ranks), part / ranks);
        }
      }
      return;
  }
  LOCKSTEP_CHECK(false, "unknown Operation");
}

std::unique_ptr<Communicator> make_local_communicator(const CommOptions& options,
                                                      std::shared_ptr<LocalHub> hub) {
  return std::make_unique<LocalCommunicator>(options, std::move(hub));
}

}  // namespace lockstep
