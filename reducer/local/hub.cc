#include "reducer/local/hub.h"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

constexpr uint64_t kStays = std::numeric_limits<uint64_t>::max();

std::string signature_of(const CollectiveCall& call, SumOrder order) {
  std::string text = describe(call);
  const bool rooted = call.operation == Operation::broadcast ||
                      call.operation == Operation::scatter || call.operation == Operation::gather;
  if (rooted) text += " from rank " + std::to_string(call.root);
  // Only a sum depends on the order.
  const bool sums =
      call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
  return sums ? text + " in order " + std::to_string(static_cast<int>(order)) : text;
}

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

  const std::string why = why_impossible(meeting, sequence);
  if (why.empty() && meeting.arrived < world_size_) {
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
  const std::string differ = why.empty() ? disagreement(complete) : std::string();
  if (!why.empty() || !differ.empty()) broken_ = true;
  lock.unlock();
  if (!why.empty()) {
    fail(complete, CommFailure::peer_lost, why);
  } else if (!differ.empty()) {
    fail(complete, CommFailure::rejected, differ);
  } else {
    finish(std::move(complete));
  }
  return work;
}

void LocalHub::leave(int64_t rank, uint64_t sequence) {
  std::vector<std::pair<Meeting, std::string>> failed;
  {
    std::lock_guard lock(mutex_);
    left_at_[static_cast<size_t>(rank)] = sequence;
    for (auto it = meetings_.begin(); it != meetings_.end();) {
      const std::string why = why_impossible(it->second, it->first);
      if (why.empty()) {
        ++it;
        continue;
      }
      broken_ = true;
      timer_.cancel(it->second.timer);
      failed.emplace_back(std::move(it->second), why);
      it = meetings_.erase(it);
    }
  }
  for (const auto& [meeting, why] : failed) fail(meeting, CommFailure::peer_lost, why);
}

std::string LocalHub::why_impossible(const Meeting& meeting, uint64_t sequence) const {
  std::vector<int64_t> gone;
  for (size_t r = 0; r < left_at_.size(); ++r) {
    if (meeting.works[r] == nullptr && left_at_[r] <= sequence) {
      gone.push_back(static_cast<int64_t>(r));
    }
  }
  if (!gone.empty()) return named_ranks(gone) + " left the group";
  return broken_ ? "a peer gave up on an earlier collective" : "";
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
  }
  std::vector<int64_t> missing;
  for (size_t r = 0; r < meeting.works.size(); ++r) {
    if (meeting.works[r] == nullptr) missing.push_back(static_cast<int64_t>(r));
  }
  fail(meeting, CommFailure::timeout, "timed out waiting for " + named_ranks(missing));
}

std::string LocalHub::disagreement(const Meeting& meeting) {
  const std::string first = signature_of(meeting.calls[0], meeting.orders[0]);
  for (size_t r = 1; r < meeting.calls.size(); ++r) {
    const std::string other = signature_of(meeting.calls[r], meeting.orders[r]);
    if (other != first) {
      return "rank " + std::to_string(r) + " calls " + other + ", rank 0 calls " + first;
    }
  }
  return "";
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

void LocalHub::fail(const Meeting& meeting, CommFailure kind, const std::string& why) {
  for (const auto& work : meeting.works) {
    if (work != nullptr) work->complete(comm_error(kind, work->what(), why));
  }
}

std::shared_ptr<LocalHub> make_local_hub(int64_t world_size) {
  return std::make_shared<LocalHub>(world_size);
}

}  // namespace lockstep
