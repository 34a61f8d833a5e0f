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
  if (end->phase == "load" || end->phase == "forward") return true;
  if (end->phase == "backward") return bucket != kRebuild || !first_pass();
  if (end->phase == "wait") return after;
  return end->phase == "optimizer" && bucket == kAverage;
}

std::optional<RankEvents::End> Walk::end_of(size_t member) const {
  return gone_[member] ? gone_[member]->end : steps_[member].end;
}

// When it did its last.
int64_t Walk::gone_since(size_t member) const {
  if (gone_[member]) return gone_[member]->at_ns;
  const auto& end = steps_[member].end;
  if (end->place == RankEvents::End::Place::bucket) return ready_[member];
  if (end->phase == "load") return begin_[member];
  if (end->phase == "forward") return first_forward_[member];
  if (end->phase == "wait") return wait_[member];
  return end->phase == "optimizer" ? next_[member] : first_backward_[member];
}

// A rank that will never come: those who are there learn it as it goes, or when they time out.
bool Walk::wait_in_vain(const BucketWork& work, Group group) {
  std::optional<size_t> gone;
  int64_t first_ns = kNever;
  for (size_t m = group.begin; m < group.end; ++m) {
    if (is_gone(m, work.bucket)) {
      if (!gone) gone = m;
    } else {
      first_ns = std::min(first_ns, early_[m]);
    }
  }
  if (!gone) return false;
  const bool dead = end_of(*gone)->dead;
  const int64_t at_ns = gone_since(*gone);
  int64_t known_ns = kNever;
  if (first_ns != kNever && dead) known_ns = std::max(at_ns, first_ns);
  if (first_ns != kNever && !dead && job_.collective_ns > 0)
    known_ns = first_ns + job_.collective_ns;
  fail(*gone, work, dead, at_ns, known_ns);
  for (size_t m = group.begin; m < group.end; ++m)
    if (is_gone(m, work.bucket)) arrival_[m] = launched_[m] = kNever;
  return true;
}

// The one that came last is why; each waits from its own arrival.
bool Walk::time_out(const BucketWork& work, const std::vector<int64_t>& ends, Group group) {
  if (job_.collective_ns == 0) return false;
  int64_t known_ns = kNever;
  for (size_t m = group.begin; m < group.end; ++m)
    if (ends[m] - early_[m] > job_.collective_ns)
      known_ns = std::min(known_ns, early_[m] + job_.collective_ns);
  if (known_ns == kNever) return false;
  const auto begin = launched_.begin();
  const auto late = static_cast<size_t>(std::max_element(begin + static_cast<int64_t>(group.begin),
                                                         begin + static_cast<int64_t>(group.end)) -
                                        begin);
  fail(late, work, false, work.bucket < 0 ? begin_[late] : backward_[late], known_ns);
  for (size_t m = group.begin; m < group.end; ++m) {
    if (arrival_[m] >= known_ns) arrival_[m] = kNever;
    if (launched_[m] >= known_ns) launched_[m] = kNever;
  }
  return true;
}

void Walk::fail(size_t member, const BucketWork& work, bool dead, int64_t at_ns, int64_t known_ns) {
  const auto end = end_of(member);
  std::string place = work.bucket == kAverage ? "optimizer" : "backward";
  if (end && end->place == RankEvents::End::Place::phase) place = end->phase;
  if (end && end->place == RankEvents::End::Place::bucket)
    place = fmt::format("bucket {}", end->bucket);
  failure_ = SimulatedFailure{.rank = members_[member].rank,
                              .step = step_,
                              .place = place,
                              .dead = dead,
                              .signal = end ? end->signal : 0,
                              .exit_code = end ? end->exit_code : -1,
                              .at_ns = at_ns,
                              .known_ns = known_ns,
                              .bucket = std::max(work.bucket, kRebuild),
                              .averaging = work.bucket == kAverage};
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
