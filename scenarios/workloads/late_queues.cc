#include "scenarios/workloads/late_queues.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Of this host thread: threads learn of each other's waits by events alone, as they should.
thread_local LateQueues::Known host;

void merge(const LateQueues::Known& from, LateQueues::Known* into) {
  for (const auto& [queue, count] : from) {
    uint64_t& known = (*into)[queue];
    known = std::max(known, count);
  }
}

bool covers(const LateQueues::Known& known, const LateQueues::Mark& mark) {
  if (mark.queue < 0) return true;
  const auto found = known.find(mark.queue);
  return found != known.end() && found->second >= mark.count;
}

}  // namespace

LateQueues::Mark LateQueues::put(int64_t queue) {
  const std::lock_guard lock(mutex_);
  Known& known = queues_[queue];
  merge(host, &known);
  return {queue, ++known[queue]};
}

bool LateQueues::is_before(const Mark& mark, int64_t queue) {
  const std::lock_guard lock(mutex_);
  return covers(host, mark) || covers(queues_[queue], mark);
}

LateQueues::Known LateQueues::record(int64_t queue) {
  const std::lock_guard lock(mutex_);
  Known event = queues_[queue];
  merge(host, &event);
  return event;
}

void LateQueues::wait(int64_t queue, const Known& event) {
  const std::lock_guard lock(mutex_);
  merge(event, &queues_[queue]);
}

void LateQueues::wait_on_host(const Known& event) {
  const std::lock_guard lock(mutex_);
  merge(event, &host);
  const auto due = std::stable_partition(
      pending_.begin(), pending_.end(), [](const Pending& one) { return !covers(host, one.mark); });
  for (auto one = due; one != pending_.end(); ++one) one->publish();
  pending_.erase(due, pending_.end());
}

void LateQueues::on_host_after(const Mark& mark, std::function<void()> publish) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({mark, std::move(publish)});
}

}  // namespace lockstep
