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

int64_t only_one(const std::vector<int64_t>& ranks) {
  return ranks.size() == 1 ? ranks.front() : -1;
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
  lock.unlock();
  if (!impossible.why.empty()) {
    fail(complete, CommFailure::peer_lost, impossible);
  } else if (!differ.why.empty()) {
    fail(complete, CommFailure::rejected, differ);
  } else {
    finish(std::move(complete));
  }
  return work;
}

void LocalHub::leave(int64_t rank, uint64_t sequence) {
  std::vector<std::pair<Meeting, Problem>> failed;
  {
    std::lock_guard lock(mutex_);
    left_at_[static_cast<size_t>(rank)] = sequence;
    for (auto it = meetings_.begin(); it != meetings_.end();) {
      const Problem problem = why_impossible(it->second, it->first);
      if (problem.why.empty()) {
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
  }
  std::vector<int64_t> missing;
  for (size_t r = 0; r < meeting.works.size(); ++r) {
    if (meeting.works[r] == nullptr) missing.push_back(static_cast<int64_t>(r));
  }
  fail(meeting, CommFailure::timeout,
       {"timed out waiting for " + named_ranks(missing), only_one(missing)});
}

// The first that does not call what most call; where there is no majority, nobody's doing.
LocalHub::Problem LocalHub::disagreement(const Meeting& meeting) {
  std::vector<std::string> texts;
  for (size_t r = 0; r < meeting.calls.size(); ++r)
    texts.push_back(signature_of(meeting.calls[r], meeting.orders[r]));
  const auto votes = [&](size_t r) { return std::count(texts.begin(), texts.end(), texts[r]); };
  size_t usual = 0, odd = 0;
  for (size_t r = 1; r < texts.size(); ++r)
    if (votes(r) > votes(usual)) usual = r;
  while (odd < texts.size() && texts[odd] == texts[usual]) ++odd;
  if (odd == texts.size()) return {};
  const bool majority = 2 * static_cast<size_t>(votes(usual)) > texts.size();
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

}  // namespace lockstep
