// A pass in which ranks hold their parameters in parts: units are gathered ahead of compute, which
// waits for them, and their gradients are reduce-scattered behind it.
#include <algorithm>

#include "sim/des/walk.h"

namespace lockstep {

void Walk::pass_through_units() {
  begin_units();
  forward_units();
  if (failure_) return;
  for (size_t m = 0; m < members_.size(); ++m) {
    const RankEvents& step = steps_[m];
    const int64_t delay = step.backward_ns + (first_pass(m) ? step.once_backward_ns : 0);
    backward_[m] = now_[m];
    if (first_pass(m)) first_backward_[m] = now_[m];
    now_[m] += delay;
    early_now_[m] += delay;
    compute_begin_[m] = ready_[m] = queue_free_[m] = now_[m];
  }
  backward_units();
}

void Walk::begin_units() {
  launched_ = forward_ = next_;
  gathered_.clear();
  computed_ = {};
  for (size_t m = 0; m < members_.size(); ++m) {
    const RankEvents& step = steps_[m];
    if (first_pass(m)) first_forward_[m] = forward_[m];
    now_[m] = next_[m] + step.forward_ns + (first_pass(m) ? step.once_forward_ns : 0);
    early_now_[m] = now_[m];
    paused_[m] = stalled_[m] = 0;
    backward_[m] = kNever;
  }
  ready_ = arrival_ = early_ = queue_free_ = now_;
}

// On to so much of forward or of backward, from where compute has come. Each stretch is scaled by
// itself, so that the slower of two alike ranks is nowhere ahead by a rounding.
void Walk::compute_until(const Progress& to) {
  const int64_t ns = to.forward_ns - computed_.forward_ns + to.backward_ns - computed_.backward_ns;
  computed_ = to;
  for (size_t m = 0; m < members_.size(); ++m) {
    const int64_t pauses = to.ready_ns < 0 ? 0 : pauses_before(m, to.ready_ns) - paused_[m];
    paused_[m] += pauses;
    const auto goes_on = [&](int64_t factor, int64_t now) {
      return slowed(now, scaled(scaled(ns, steps_[m].compute_factor), factor) + pauses);
    };
    now_[m] = goes_on(draws_->ranks[m].late, now_[m]);
    early_now_[m] = goes_on(draws_->ranks[m].early, early_now_[m]);
  }
}

void Walk::forward_until(int64_t forward_ns) { compute_until({forward_ns, 0, -1}); }

void Walk::backward_until(int64_t ready_ns) {
  compute_until({job_.forward_ns, ready_ns + worked_ns_, ready_ns});
}

void Walk::gather_unit(size_t unit, int64_t kind) {
  if (failure_) return;
  arrival_ = now_;
  early_ = early_now_;
  const BucketWork work{kind, job_.parts->units[unit].bytes, 0, 0};
  launch(Operation::all_gather, work.bytes);
  gathered_.push_back(done_.size());
  meet(done_.size(), Operation::all_gather, work);
}

// For the one that was asked for first.
void Walk::wait_for_unit() {
  if (failure_) return;
  const std::vector<int64_t>& done = done_[gathered_.front()];
  gathered_.erase(gathered_.begin());
  for (size_t m = 0; m < members_.size(); ++m) {
    stalled_[m] += std::max<int64_t>(done[m] - now_[m], 0);
    now_[m] = std::max(now_[m], done[m]);
    early_now_[m] = std::max(early_now_[m], done[m]);
  }
}

// While unit u is computed the next ones are asked for.
void Walk::forward_units() {
  const ParameterShards& parts = *job_.parts;
  const auto ahead = static_cast<size_t>(parts.prefetch);
  size_t asked = 0;
  for (size_t u = 0; u < parts.units.size() && !failure_; ++u) {
    if (u > 0) forward_until(parts.units[u].forward_ns);
    if (asked == u) gather_unit(asked++, kForwardUnit);
    wait_for_unit();
    while (asked < parts.units.size() && asked <= u + ahead) gather_unit(asked++, kForwardUnit);
  }
  if (!failure_) forward_until(job_.forward_ns);
}

// The same from the last to the first; the root's are still there.
void Walk::backward_units() {
  const ParameterShards& parts = *job_.parts;
  const auto& buckets = buckets_of(job_, pass_);
  const auto ahead = static_cast<size_t>(parts.prefetch);
  const size_t units = parts.units.size();
  size_t asked = units;  // those from here on
  const auto ask = [&] { gather_unit(--asked, kBackwardUnit); };
  if (parts.reshard && ahead > 0 && units > 1) ask();
  for (size_t u = units; u-- > 1 && !failure_;) {
    backward_until(parts.units[u].backward_ns);
    if (parts.reshard) {
      if (asked > u) ask();
      wait_for_unit();
      while (!failure_ && asked > 1 && asked + ahead > u) ask();
    }
    if (failure_) return;
    const size_t b = units - 1 - u;
    if (!buckets.empty()) worked_ns_ += buckets[b].work_ns;
    backward_until(parts.units[u].done_ns);
    if (!buckets.empty()) reduce_unit(buckets[b]);
  }
  if (failure_) return;
  if (!buckets.empty()) worked_ns_ += buckets.back().work_ns;
  backward_until(job_.backward_ns);
  if (!buckets.empty()) reduce_unit(buckets.back());
}

void Walk::reduce_unit(const BucketWork& work) {
  for (size_t m = 0; m < members_.size(); ++m) {
    ready_[m] = now_[m];
    arrival_[m] = now_[m] + work.extra_ns;
    early_[m] = early_now_[m] + work.extra_ns;
  }
  launch(Operation::reduce_scatter, work.bytes);
  meet(done_.size(), Operation::reduce_scatter, work);
  if (has_copies(job_)) sum_between_copies(work);
}

// Of the ranks whose backward ends last the one that waited least for units: what is left of the
// pass is compute that nothing hides.
int64_t Walk::least_stall() const {
  const int64_t last = *std::max_element(wait_.begin(), wait_.end());
  int64_t least = kNever;
  for (size_t m = 0; m < members_.size(); ++m)
    if (wait_[m] == last) least = std::min(least, stalled_[m]);
  return least;
}

}  // namespace lockstep
