// Who is missed in a collective, and how the others come to know it.
#include <fmt/format.h>

#include <algorithm>

#include "sim/des/walk.h"

namespace lockstep {

// Gone since a step or a pass before, at a phase that leads here, or at this very bucket.
bool Walk::is_gone(size_t member, int64_t bucket) const {
  if (gone_[member]) return true;
  const auto& end = steps_[member].end;
  if (!end) return false;
  const bool after = bucket == kAverage || !first_due_pass();  // all of a due pass is behind it
  if (end->place == RankEvents::End::Place::bucket)
    return communicates(job_, pass_) && (after || (bucket >= 0 && end->bucket == bucket));
  if (end->phase == Phase::load || end->phase == Phase::forward) return true;
  const bool in_forward = bucket == kRebuild || bucket == kForwardUnit;
  if (end->phase == Phase::backward) return !in_forward || !first_pass();
  if (end->phase == Phase::wait) return after || bucket == kGather;
  return end->phase == Phase::optimizer && bucket == kAverage;
}

std::optional<RankEvents::End> Walk::end_of(size_t member) const {
  return gone_[member] ? gone_[member]->end : steps_[member].end;
}

// When it did its last.
int64_t Walk::gone_since(size_t member) const {
  if (gone_[member]) return gone_[member]->at_ns;
  const auto& end = steps_[member].end;
  if (end->place == RankEvents::End::Place::bucket) return ready_[member];
  if (end->phase == Phase::load) return begin_[member];
  if (end->phase == Phase::forward) return first_forward_[member];
  if (end->phase == Phase::wait) return wait_[member];
  return end->phase == Phase::optimizer ? next_[member] : first_backward_[member];
}

// A rank that will never come: those who are there learn it as it goes, or when they time out.
bool Walk::wait_in_vain(const BucketWork& work, Group group) {
  std::optional<size_t> gone;
  int64_t first_ns = kNever;
  for (size_t m = group.begin; m < group.end; m += group.step) {
    if (is_gone(m, work.bucket)) {
      if (!gone) gone = m;
    } else {
      first_ns = std::min(first_ns, early_[m]);
    }
  }
  if (!gone) return false;
  const bool dead = end_of(*gone)->dead;
  int64_t known_ns = kNever;
  if (first_ns != kNever && dead) known_ns = std::max(gone_since(*gone), first_ns);
  if (first_ns != kNever && !dead && job_.collective_ns > 0)
    known_ns = first_ns + job_.collective_ns;
  fail(dead ? EndedBy::death : EndedBy::hang, *gone, work, known_ns);
  failure_->at_ns = gone_since(*gone);
  for (size_t m = group.begin; m < group.end; m += group.step)
    if (is_gone(m, work.bucket)) arrival_[m] = launched_[m] = kNever;
  return true;
}

// With noise of each bucket the earliest of alike ranks is not one rank throughout a pass: how long
// it waited is known rank by rank only.
bool Walk::only_seems_late() {
  const bool alone = std::all_of(members_.begin(), members_.end(),
                                 [](const Member& member) { return member.count == 1; });
  if (alone || !job_.noise.any() || !job_.noise.per_bucket) return false;
  if (looked_at_ != step_) fails_by_rank_ = failure_by_rank().has_value();
  looked_at_ = step_;
  return !fails_by_rank_;
}

// The latest of a group; of equals the lowest rank.
size_t Walk::latest(const std::vector<int64_t>& times, Group group) const {
  size_t late = group.begin;
  for (size_t m = group.begin; m < group.end; m += group.step)
    if (times[m] > times[late] ||
        (times[m] == times[late] && members_[m].rank < members_[late].rank))
      late = m;
  return late;
}

// Each waits from its own arrival. Whoever has not come when the first gives up is why: the one
// that would have come last. Where all had come, or all are held back alike, it is the last one if
// it took half of the time-out to come, as the judge of real runs has it; else the rest was not
// enough for the collective itself.
bool Walk::time_out(const BucketWork& work, const std::vector<int64_t>& ends, Group group) {
  if (job_.collective_ns == 0) return false;
  int64_t known_ns = kNever, first_ns = kNever, first_launch_ns = kNever, last_end_ns = 0;
  for (size_t m = group.begin; m < group.end; m += group.step) {
    if (ends[m] - early_[m] > job_.collective_ns)
      known_ns = std::min(known_ns, early_[m] + job_.collective_ns);
    first_ns = std::min(first_ns, early_[m]);
    first_launch_ns = std::min(first_launch_ns, early_[m] + launched_[m] - arrival_[m]);
    last_end_ns = std::max(last_end_ns, ends[m]);
  }
  if (known_ns == kNever || only_seems_late()) return false;
  const size_t last = latest(launched_, group);
  const bool came = launched_[last] < known_ns || first_launch_ns >= known_ns;
  const size_t late = came ? latest(arrival_, group) : last;
  const int64_t apart_ns = came ? arrival_[late] - first_ns : launched_[late] - first_launch_ns;
  const bool together = came && 2 * apart_ns < job_.collective_ns;
  fail(together ? EndedBy::short_timeout : EndedBy::lateness, late, work, known_ns);
  failure_->entered = came;
  failure_->apart_ns = apart_ns;
  failure_->transfer_ns = last_end_ns - launched_[last];
  const bool before_backward =
      work.bucket == kRebuild || work.bucket == kForwardUnit || work.bucket == kAverage;
  failure_->at_ns = came ? arrival_[late] : before_backward ? begin_[late] : backward_[late];
  for (size_t m = group.begin; m < group.end; m += group.step) {
    if (arrival_[m] >= known_ns) arrival_[m] = kNever;
    if (launched_[m] >= known_ns) launched_[m] = kNever;
  }
  return true;
}

void Walk::fail(EndedBy cause, size_t member, const BucketWork& work, int64_t known_ns) {
  const bool nobody = cause == EndedBy::short_timeout;
  const auto end = nobody ? std::nullopt : end_of(member);
  std::string place = work.bucket == kAverage       ? "optimizer"
                      : work.bucket == kGather      ? "wait"
                      : work.bucket == kForwardUnit ? "forward"
                                                    : "backward";
  if (end && end->place == RankEvents::End::Place::phase) place = to_word(end->phase);
  if (end && end->place == RankEvents::End::Place::bucket)
    place = fmt::format("bucket {}", end->bucket);
  failure_ = SimulatedFailure{.cause = cause,
                              .rank = members_[member].rank,
                              .step = step_,
                              .place = place,
                              .signal = end ? end->signal : 0,
                              .exit_code = end ? end->exit_code : -1,
                              .known_ns = known_ns,
                              .bucket = std::max(work.bucket, kRebuild),
                              .averaging = work.bucket == kAverage,
                              .gathering = work.bucket <= kGather,
                              .timeout_ns = job_.collective_ns};
  if (nobody) failure_->rank.reset();
}

// Those who went where nobody has missed them yet.
void Walk::note_gone() {
  const bool in_buckets = communicates(job_, pass_);
  for (size_t m = 0; m < members_.size(); ++m) {
    const auto& end = steps_[m].end;
    if (!members_[m].touched || gone_[m] || !end) continue;
    if (in_buckets || end->place == RankEvents::End::Place::phase)
      gone_[m] = Gone{*end, gone_since(m)};
  }
  if (trace_ == nullptr) return;
  for (const auto& gone : gone_) trace_->gone_ns.push_back(gone ? gone->at_ns : kNever);
}

}  // namespace lockstep
