#include "sim/des/walk.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

int64_t largest(const std::vector<int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

int64_t pauses_before(const RankEvents& step, int64_t ready_ns) {
  int64_t ns = 0;
  for (const RankEvents::Pause& pause : step.pauses)
    if (ready_ns >= pause.ready_ns) ns += pause.ns;
  return ns;
}

// What a ring makes each rank send.
int64_t sent_bytes(int64_t bytes, int64_t ranks) {
  return static_cast<int64_t>(static_cast<__int128>(bytes) * 2 * (ranks - 1) / ranks);
}

int64_t queued_ns(const RankEvents& step, int64_t bytes, int64_t ranks) {
  const auto wire = static_cast<__int128>(sent_bytes(bytes, ranks)) * step.queue_fs_per_byte;
  return step.queue_ns + static_cast<int64_t>((wire + 999'999) / 1'000'000);
}

}  // namespace

Walk::Walk(const Job& job, std::vector<Member> members, CollectiveEnds ends)
    : job_(job),
      members_(std::move(members)),
      ends_(std::move(ends)),
      steps_(members_.size()),
      begin_(members_.size()),
      forward_(begin_),
      backward_(begin_),
      compute_begin_(begin_),
      wait_(begin_),
      optimizer_(begin_),
      end_(begin_),
      ready_(begin_),
      arrival_(begin_),
      early_(begin_),
      queue_free_(begin_),
      launched_(begin_),
      early_begin_(begin_),
      gone_(members_.size()) {}

StepNumbers Walk::step(const Draws& draws, StepTrace* trace) {
  ++step_;
  trace_ = trace;
  draws_ = &draws;
  if (trace_ != nullptr) *trace_ = StepTrace{};
  begin_ = end_;
  for (size_t m = 0; m < members_.size(); ++m)
    if (members_[m].touched) steps_[m] = job_.schedule.at(members_[m].rank, step_);
  done_.clear();
  spans_.clear();
  comm_.clear();
  skew_ns_ = 0;
  begin_compute(draws);
  if (failure_) return end_step();
  const auto& buckets = buckets_of(job_, step_);
  for (size_t b = 0; b < buckets.size() && !failure_; ++b) {
    compute_bucket(b, buckets[b], draws);
    launch(buckets[b]);
    reduce(b, buckets[b]);
  }
  return end_step();
}

// Of the earliest of many everything but the noise is as of the latest.
void Walk::begin_compute(const Draws& draws) {
  for (size_t m = 0; m < members_.size(); ++m)
    launched_[m] = forward_[m] = begin_[m] + steps_[m].load_ns + job_.load_ns;
  if (step_ == 2 && synchronizes(job_, step_) && job_.ranks > 1) rebuild();
  if (failure_) return;
  for (size_t m = 0; m < members_.size(); ++m) {
    const RankEvents& step = steps_[m];
    const int64_t forward = scaled(job_.forward_ns, step.compute_factor);
    const int64_t begin = launched_[m] + step.forward_ns;
    backward_[m] = begin + scaled(forward, draws.ranks[m].late);
    compute_begin_[m] = backward_[m] + step.backward_ns;
    ready_[m] = arrival_[m] = queue_free_[m] = compute_begin_[m];
    early_[m] = early_begin_[m] = begin + scaled(forward, draws.ranks[m].early) + step.backward_ns;
  }
}

// DDP tells all ranks the new buckets at the begin of the second forward: nobody goes on before the
// last one has come. Leaves in launched_ when each goes on.
void Walk::rebuild() {
  const int64_t last = largest(forward_);
  arrival_ = early_ = launched_ = forward_;
  const BucketWork none{-1, 0, 0, 0};
  if (wait_in_vain(none)) return;
  std::vector<int64_t> ends(members_.size(), last + job_.rebuild_ns);
  if (!time_out(none, ends)) launched_ = std::move(ends);
}

int64_t Walk::work_of(size_t member, int64_t ready_ns, int64_t factor) const {
  const RankEvents& step = steps_[member];
  return scaled(scaled(ready_ns, step.compute_factor), factor) + pauses_before(step, ready_ns);
}

// When so much work is done that began then, where it goes slower under every collective of the
// step so far. From the begin each time, so that it depends on nothing else.
int64_t Walk::slowed(int64_t begin_ns, int64_t work_ns) const {
  if (job_.overlap_slowdown == 0) return begin_ns + work_ns;
  const int64_t slow = kOne + job_.overlap_slowdown;
  int64_t time_ns = begin_ns, left = work_ns;
  for (const Span& span : spans_) {
    const int64_t free = std::clamp<int64_t>(span.begin_ns - time_ns, 0, left);
    time_ns += free;
    left -= free;
    const int64_t there = std::max<int64_t>(span.end_ns - time_ns, 0);
    if (scaled(left, slow) <= there) return time_ns + scaled(left, slow);
    left -= static_cast<int64_t>(static_cast<__int128>(there) * kOne / slow);
    time_ns += there;
  }
  return time_ns + left;
}

void Walk::compute_bucket(size_t place, const BucketWork& work, const Draws& draws) {
  for (size_t m = 0; m < members_.size(); ++m) {
    const Factors& factors = draws.buckets.empty() ? draws.ranks[m] : draws.buckets[place][m];
    const int64_t late = slowed(compute_begin_[m], work_of(m, work.ready_ns, factors.late));
    const int64_t early = slowed(early_begin_[m], work_of(m, work.ready_ns, factors.early));
    ready_[m] = std::max(ready_[m], late);
    arrival_[m] = std::max(arrival_[m], ready_[m] + work.extra_ns);
    early_[m] = std::max(early_[m], early + work.extra_ns);
  }
}

void Walk::launch(const BucketWork& work) {
  for (size_t m = 0; m < members_.size(); ++m) {
    const RankEvents& step = steps_[m];
    launched_[m] = arrival_[m];
    if (step.queue_ns == 0 && step.queue_fs_per_byte == 0) continue;
    launched_[m] = std::max(arrival_[m], queue_free_[m]) + queued_ns(step, work.bytes, job_.ranks);
    queue_free_[m] = launched_[m];
  }
}

void Walk::reduce(size_t place, const BucketWork& work) {
  std::vector<int64_t> ends(members_.size(), kNever);
  if (!wait_in_vain(work)) {
    std::vector<int64_t> starts = launched_;
    const auto channels = static_cast<size_t>(job_.channels);
    if (place >= channels)
      for (size_t m = 0; m < starts.size(); ++m)
        starts[m] = std::max(starts[m], done_[place - channels][m]);
    ends = ends_(starts, work.bytes);
    skew_ns_ =
        std::max(skew_ns_, largest(arrival_) - *std::min_element(early_.begin(), early_.end()));
    if (!time_out(work, ends)) {
      spans_.push_back({largest(starts), largest(ends)});
      comm_.push_back({largest(arrival_), largest(ends)});
    }
  }
  if (failure_) ends.assign(members_.size(), kNever);
  trace_collective(ends);
  done_.push_back(std::move(ends));
}

// Gone since a step before, at a phase that leads here, or at this very bucket.
bool Walk::is_gone(size_t member, int64_t bucket) const {
  if (gone_[member]) return true;
  const auto& end = steps_[member].end;
  if (!end) return false;
  if (end->place == RankEvents::End::Place::bucket) return bucket >= 0 && end->bucket == bucket;
  if (end->phase == "load" || end->phase == "forward") return true;
  return end->phase == "backward" && bucket >= 0;
}

// A rank that will never come: those who are there learn it as it goes, or when they time out.
bool Walk::wait_in_vain(const BucketWork& work) {
  std::optional<size_t> gone;
  int64_t first_ns = kNever;
  for (size_t m = 0; m < members_.size(); ++m) {
    if (is_gone(m, work.bucket)) {
      if (!gone) gone = m;
    } else {
      first_ns = std::min(first_ns, early_[m]);
    }
  }
  if (!gone) return false;
  const auto& end = steps_[*gone].end;
  const bool dead = end && end->dead;
  const bool here = end && end->place == RankEvents::End::Place::bucket;
  const int64_t at_ns = here                           ? ready_[*gone]
                        : !end || end->phase == "load" ? begin_[*gone]
                        : end->phase == "forward"      ? forward_[*gone]
                                                       : backward_[*gone];
  int64_t known_ns = kNever;
  if (first_ns != kNever && dead) known_ns = std::max(at_ns, first_ns);
  if (first_ns != kNever && !dead && job_.collective_ns > 0)
    known_ns = first_ns + job_.collective_ns;
  fail(*gone, work, dead, at_ns, known_ns);
  for (size_t m = 0; m < members_.size(); ++m)
    if (is_gone(m, work.bucket)) arrival_[m] = launched_[m] = kNever;
  return true;
}

// The one that came last is why; each waits from its own arrival.
bool Walk::time_out(const BucketWork& work, const std::vector<int64_t>& ends) {
  if (job_.collective_ns == 0) return false;
  int64_t known_ns = kNever;
  for (size_t m = 0; m < members_.size(); ++m)
    if (ends[m] - early_[m] > job_.collective_ns)
      known_ns = std::min(known_ns, early_[m] + job_.collective_ns);
  if (known_ns == kNever) return false;
  const auto last = std::max_element(launched_.begin(), launched_.end()) - launched_.begin();
  const auto late = static_cast<size_t>(last);
  fail(late, work, false, work.bucket < 0 ? begin_[late] : backward_[late], known_ns);
  for (size_t m = 0; m < members_.size(); ++m) {
    if (arrival_[m] >= known_ns) arrival_[m] = kNever;
    if (launched_[m] >= known_ns) launched_[m] = kNever;
  }
  return true;
}

void Walk::fail(size_t member, const BucketWork& work, bool dead, int64_t at_ns, int64_t known_ns) {
  const auto& end = steps_[member].end;
  std::string place = "backward";
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
                              .bucket = work.bucket};
}

// What comes after the last bucket goes as the rank's noise says; with noise per bucket there is
// none of it.
int64_t Walk::end_of_backward(size_t member) {
  const auto& buckets = buckets_of(job_, step_);
  const int64_t factor = draws_->ranks[member].late;
  const int64_t whole = slowed(compute_begin_[member], work_of(member, job_.backward_ns, factor));
  const bool all_in_buckets = !buckets.empty() && buckets.back().ready_ns == job_.backward_ns;
  const int64_t own = all_in_buckets ? ready_[member] : std::max(ready_[member], whole);
  return std::max(own, arrival_[member]);
}

StepNumbers Walk::end_step() {
  StepNumbers numbers;
  for (size_t m = 0; m < members_.size() && !failure_; ++m) {
    wait_[m] = end_of_backward(m);
    int64_t done = wait_[m] + steps_[m].wait_ns;
    for (const auto& ends : done_) done = std::max(done, ends[m]);
    optimizer_[m] = done;
    end_[m] = done + steps_[m].optimizer_ns + job_.optimizer_ns;
    if (steps_[m].end) gone_[m] = true;
  }
  trace_step();
  if (failure_) return numbers;
  const int64_t compute_end = largest(wait_), comm_end = spans_.empty() ? 0 : spans_.back().end_ns;
  numbers.end_ns = largest(end_);
  numbers.duration_ns = numbers.end_ns - last_end_;
  numbers.compute_ns = compute_end - last_end_;
  numbers.exposed_ns = std::max<int64_t>(comm_end - compute_end, 0);
  numbers.skew_ns = skew_ns_;
  int64_t covered = 0;
  for (const Span& span : comm_) {
    numbers.comm_ns += std::max<int64_t>(span.end_ns - std::max(span.begin_ns, covered), 0);
    covered = std::max(covered, span.end_ns);
  }
  last_end_ = numbers.end_ns;
  return numbers;
}

void Walk::trace_collective(const std::vector<int64_t>& ends) {
  if (trace_ == nullptr) return;
  trace_->ready_ns.push_back(ready_);
  trace_->arrival_ns.push_back(arrival_);
  trace_->launched_ns.push_back(launched_);
  trace_->done_ns.push_back(ends);
}

void Walk::trace_step() {
  if (trace_ == nullptr) return;
  trace_->step = step_;
  trace_->begin_ns = begin_;
  trace_->forward_ns = forward_;
  trace_->backward_ns = backward_;
  trace_->wait_ns = wait_;
  trace_->optimizer_ns = optimizer_;
  trace_->end_ns = end_;
  trace_->failure = failure_;
}

}  // namespace lockstep
