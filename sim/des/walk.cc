#include "sim/des/walk.h"

#include <algorithm>
#include <cmath>

#include "sim/des/collective.h"
#include "sim/des/random.h"

namespace lockstep {
namespace {

Factors factors_of(const Job& job, const RankStream& stream, const Member& member) {
  RankStream::Range all{UINT32_MAX, 0};
  for (const auto& [begin, end] : member.ranges) {
    const RankStream::Range range = stream.range(begin, end);
    all = {std::min(all.least, range.least), std::max(all.largest, range.largest)};
  }
  return {factor_at(job.noise, unit_of(all.largest)), factor_at(job.noise, unit_of(all.least))};
}

// Of the member's first rank alone, where it is one; else of the extremes of so many.
Factors extremes_of(const Job& job, const RankStream& largest, const RankStream& least,
                    const Member& member) {
  const double share = 1 / static_cast<double>(member.count);
  const double u = largest.of_all(), v = least.of_all();
  // 1 - (1 - v)^(1/n), without losing what is near 0.
  const double low = -std::expm1(std::log1p(-v) * share);
  return {factor_at(job.noise, std::min(std::pow(u, share), 1 - 0x1p-53)),
          factor_at(job.noise, std::max(low, 0x1p-60))};
}

template <class FactorsOf>
Draws draws_by(const Job& job, const std::vector<Member>& members, int64_t pass,
               FactorsOf factors) {
  Draws draws;
  draws.ranks.assign(members.size(), {});
  if (!job.noise.any()) return draws;
  const auto fill = [&](int64_t bucket, std::vector<Factors>* into) {
    into->clear();
    for (const Member& member : members) into->push_back(factors(member, bucket));
  };
  const auto& buckets = buckets_of(job, pass);
  if (!job.noise.per_bucket || buckets.empty()) {
    fill(-1, &draws.ranks);
    return draws;
  }
  draws.buckets.resize(buckets.size());
  for (size_t b = 0; b < buckets.size(); ++b) fill(buckets[b].bucket, &draws.buckets[b]);
  return draws;
}

}  // namespace

std::vector<Member> each_rank(const Job& job) {
  std::vector<Member> members(static_cast<size_t>(job.ranks));
  for (int64_t rank = 0; rank < job.ranks; ++rank)
    members[static_cast<size_t>(rank)] = {rank, 1, false, {{rank, rank + 1}}};
  for (const int64_t rank : job.schedule.touched)
    if (rank < job.ranks) members[static_cast<size_t>(rank)].touched = true;
  return members;
}

std::vector<Member> classes_of(const Job& job) {
  Member others{-1, 0, false, {}};
  std::vector<Member> members;
  const auto add_others = [&](int64_t begin, int64_t end) {
    if (begin >= end) return;
    if (others.count == 0) others.rank = begin;
    others.count += end - begin;
    others.ranges.emplace_back(begin, end);
  };
  int64_t next = 0;
  for (const int64_t rank : job.schedule.touched) {
    if (rank >= job.ranks) break;
    add_others(next, rank);
    members.push_back({rank, 1, true, {{rank, rank + 1}}});
    next = rank + 1;
  }
  add_others(next, job.ranks);
  if (others.count > 0) members.push_back(others);
  return members;
}

bool noise_ends_together(const Job& job) {
  if (!job.noise.any()) return true;
  // Draws of several passes add up to a sum of each rank's own.
  if (job.passes > 1 && !job.each_pass) return false;
  if (job.local_from && *job.local_from <= job.steps) return false;
  for (const auto* buckets : {&job.first_step, &job.settled})
    if (buckets->empty() || buckets->back().ready_ns != job.backward_ns) return false;
  return true;
}

bool groups_differ(const Job& job) {
  const bool groups = std::any_of(job.averaging.begin(), job.averaging.end(),
                                  [&](const Averaging& a) { return a.ranks < job.ranks; });
  return groups && !job.schedule.touched.empty();
}

Draws draws_of(const Job& job, const std::vector<Member>& members, int64_t pass) {
  return draws_by(job, members, pass, [&](const Member& member, int64_t bucket) {
    return factors_of(job, RankStream(job.seed, pass, bucket), member);
  });
}

Draws order_statistics(const Job& job, const std::vector<Member>& members, int64_t pass) {
  return draws_by(job, members, pass, [&](const Member& member, int64_t bucket) {
    const uint64_t seed = job.seed + static_cast<uint64_t>(member.rank);
    return extremes_of(job, RankStream(seed ^ 0x4c34, pass, bucket),
                       RankStream(seed ^ 0x4c35, pass, bucket), member);
  });
}

namespace {

int64_t largest(const std::vector<int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

// What a ring makes each rank send, or an exchange.
int64_t sent_bytes(Operation operation, int64_t bytes, int64_t ranks) {
  const int64_t rounds = (operation == Operation::all_reduce ? 2 : 1) * (ranks - 1);
  return static_cast<int64_t>(static_cast<__int128>(bytes) * rounds / ranks);
}

int64_t queued_ns(const RankEvents& step, int64_t sent_bytes) {
  const auto wire = static_cast<__int128>(sent_bytes) * step.queue_fs_per_byte;
  return step.queue_ns + static_cast<int64_t>((wire + 999'999) / 1'000'000);
}

}  // namespace

Walk::Walk(const Job& job, std::vector<Member> members, CollectiveEnds ends)
    : job_(job), ends_(std::move(ends)) {
  take(std::move(members), 0);
  for (const Averaging& level : job_.averaging) {
    Job& group = groups_.emplace_back();
    group.ranks = level.ranks;
    group.cost = job_.cost;
    if (level.ranks == job_.ranks) group.links = job_.links;
  }
}

void Walk::take(std::vector<Member> members, int64_t end_ns) {
  members_ = std::move(members);
  const size_t count = members_.size();
  steps_.assign(count, {});
  first_passes_.clear();
  for (const Member& member : members_) first_passes_.push_back(first_pass_of(job_, member.rank));
  gone_.assign(count, {});
  end_.assign(count, end_ns);
  for (std::vector<int64_t>* times :
       {&begin_, &next_, &forward_, &backward_, &compute_begin_, &wait_, &optimizer_,
        &first_forward_, &first_backward_, &ready_, &arrival_, &early_, &queue_free_, &launched_,
        &early_begin_, &now_, &early_now_, &paused_, &stalled_})
    times->assign(count, 0);
}

void Walk::regroup(std::vector<Member> members) {
  const int64_t end_ns = end_.front();
  const bool together =
      std::all_of(end_.begin(), end_.end(), [&](int64_t ns) { return ns == end_ns; });
  const bool all_there =
      std::none_of(gone_.begin(), gone_.end(), [](const auto& gone) { return gone.has_value(); });
  LOCKSTEP_CHECK(together && all_there, "ranks that leave a step apart are regrouped");
  take(std::move(members), end_ns);
}

StepNumbers Walk::step(std::span<const Draws> draws, StepTrace* trace) {
  ++step_;
  trace_ = trace;
  if (trace_ != nullptr) *trace_ = StepTrace{};
  begin_ = end_;
  comm_.clear();
  skew_ns_ = longest_ns_ = exposed_ns_ = average_ns_ = 0;
  for (size_t m = 0; m < members_.size(); ++m) {
    if (members_[m].touched) steps_[m] = job_.schedule.at(members_[m].rank, step_);
    next_[m] = begin_[m] + steps_[m].load_ns + job_.load_ns;
  }
  for (const Draws& of_pass : draws)
    if (!failure_) pass(of_pass);
  return end_step();
}

std::optional<SimulatedFailure> Walk::failure_by_rank() const {
  Walk walk(job_, each_rank(job_), ends_);
  walk.step_ = step_ - 1;
  walk.pass_ = walk.step_ * job_.passes;
  // Whoever is no member left the step before with all others (regroup()).
  walk.end_.assign(walk.end_.size(), begin_.front());
  for (size_t m = 0; m < members_.size(); ++m)
    for (const auto& [begin, end] : members_[m].ranges)
      for (int64_t rank = begin; rank < end; ++rank) {
        walk.end_[static_cast<size_t>(rank)] = begin_[m];
        walk.gone_[static_cast<size_t>(rank)] = gone_[m];
      }
  std::vector<Draws> draws;
  for (int64_t pass = 1; pass <= job_.passes; ++pass)
    draws.push_back(draws_of(job_, walk.members_, walk.pass_ + pass));
  walk.step(draws, nullptr);
  return walk.failure();
}

void Walk::pass(const Draws& draws) {
  ++pass_;
  draws_ = &draws;
  done_.clear();
  summed_.clear();
  spans_.clear();
  worked_ns_ = 0;
  pass_work_ns_ = bucket_work_ns(job_, pass_);
  if (trace_ != nullptr) trace_->passes.emplace_back().pass = pass_;
  if (job_.parts)
    pass_through_units();
  else
    communicate();
  end_pass();
}

void Walk::communicate() {
  begin_compute();
  if (failure_) return;
  const auto& buckets = buckets_of(job_, pass_);
  for (size_t b = 0; b < buckets.size() && !failure_; ++b) {
    compute_bucket(b, buckets[b]);
    launch(bucket_operation(job_), exchanged_bytes(job_, buckets[b].bytes));
    meet(b, bucket_operation(job_), buckets[b]);
  }
}

// Of the earliest of many everything but the noise is as of the latest.
void Walk::begin_compute() {
  launched_ = forward_ = next_;
  for (size_t m = 0; m < members_.size(); ++m)
    if (first_pass(m)) first_forward_[m] = forward_[m];
  if (rebuilds(job_, pass_)) rebuild();
  if (failure_) return;
  for (size_t m = 0; m < members_.size(); ++m) {
    if (!computes(m)) continue;
    const RankEvents& step = steps_[m];
    const bool first = first_pass(m);
    const int64_t forward = scaled(job_.forward_ns, step.compute_factor);
    const int64_t begin = launched_[m] + step.forward_ns + (first ? step.once_forward_ns : 0);
    const int64_t delay = step.backward_ns + (first ? step.once_backward_ns : 0);
    backward_[m] = begin + scaled(forward, draws_->ranks[m].late);
    compute_begin_[m] = backward_[m] + delay;
    ready_[m] = arrival_[m] = queue_free_[m] = compute_begin_[m];
    early_[m] = early_begin_[m] = begin + scaled(forward, draws_->ranks[m].early) + delay;
    if (first) first_backward_[m] = backward_[m];
  }
}

// DDP tells all ranks the new buckets at the begin of a forward: nobody goes on before the last one
// has come. Leaves in launched_ when each goes on.
void Walk::rebuild() {
  const int64_t last = largest(forward_);
  arrival_ = early_ = launched_ = forward_;
  const BucketWork none{kRebuild, 0, 0, 0};
  if (wait_in_vain(none, all())) return;
  std::vector<int64_t> ends(members_.size(), last + job_.rebuild_ns);
  longest_ns_ =
      std::max(longest_ns_, largest(ends) - *std::min_element(early_.begin(), early_.end()));
  if (!time_out(none, ends, all())) launched_ = std::move(ends);
}

int64_t Walk::pauses_before(size_t member, int64_t ready_ns) const {
  int64_t ns = 0;
  for (const RankEvents::Pause& pause : steps_[member].pauses) {
    if (ready_ns < pause.ready_ns || (pause.of_bucket && !communicates(job_, pass_))) continue;
    const bool again = !(pause.of_bucket ? first_due_pass() : first_pass(member));
    if (!pause.once || !again) ns += pause.ns;
  }
  return ns;
}

int64_t Walk::work_of(size_t member, int64_t ready_ns, int64_t bucket_work_ns,
                      int64_t factor) const {
  const RankEvents& step = steps_[member];
  return scaled(scaled(ready_ns + bucket_work_ns, step.compute_factor), factor) +
         pauses_before(member, ready_ns);
}

void Walk::compute_bucket(size_t place, const BucketWork& work) {
  const Draws& draws = *draws_;
  worked_ns_ += work.work_ns;
  for (size_t m = 0; m < members_.size(); ++m) {
    const Factors& factors = draws.buckets.empty() ? draws.ranks[m] : draws.buckets[place][m];
    const auto work_ns = [&](int64_t factor) {
      return work_of(m, work.ready_ns, worked_ns_, factor);
    };
    const int64_t late = slowed(compute_begin_[m], work_ns(factors.late));
    const int64_t early = slowed(early_begin_[m], work_ns(factors.early));
    ready_[m] = std::max(ready_[m], late);
    arrival_[m] = std::max(arrival_[m], ready_[m] + work.extra_ns);
    early_[m] = std::max(early_[m], early + work.extra_ns);
  }
}

void Walk::launch(Operation operation, int64_t bytes) {
  const int64_t ranks = job_.parts ? ranks_in_unit(job_, operation) : job_.ranks;
  const int64_t sent = sent_bytes(operation, bytes, ranks);
  for (size_t m = 0; m < members_.size(); ++m) {
    const RankEvents& step = steps_[m];
    launched_[m] = arrival_[m];
    if (step.queue_ns == 0 && step.queue_fs_per_byte == 0) continue;
    launched_[m] = std::max(arrival_[m], queue_free_[m]) + queued_ns(step, sent);
    queue_free_[m] = launched_[m];
  }
}

// place: among the collectives of the pass.
void Walk::meet(size_t place, Operation operation, const BucketWork& work) {
  if (has_copies(job_)) return meet_in_groups(operation, work);
  std::vector<int64_t> ends(members_.size(), kNever);
  if (!wait_in_vain(work, all())) {
    std::vector<int64_t> starts = launched_;
    const auto channels = static_cast<size_t>(job_.channels);
    if (place >= channels)
      for (size_t m = 0; m < starts.size(); ++m)
        starts[m] = std::max(starts[m], done_[place - channels][m]);
    ends = operation == Operation::all_gather ? ends_of_gather(job_, starts, work.bytes)
                                              : ends_(job_, starts, work.bytes);
    share(place, wire_ns(job_, operation, work.bytes), largest(starts), &ends);
    const int64_t first = *std::min_element(early_.begin(), early_.end());
    skew_ns_ = std::max(skew_ns_, largest(arrival_) - first);
    longest_ns_ = std::max(longest_ns_, largest(ends) - first);
    if (!time_out(work, ends, all())) {
      spans_.push_back({largest(starts), largest(ends)});
      comm_.push_back({largest(arrival_), largest(ends)});
    }
  }
  if (failure_) ends.assign(members_.size(), kNever);
  trace_collective(operation, ends);
  done_.push_back(std::move(ends));
}

// What comes after the last bucket goes as the rank's noise says; with noise per bucket there is
// none of it.
int64_t Walk::end_of_backward(size_t member) {
  if (job_.parts) return std::max(now_[member], arrival_[member]);
  const auto& buckets = buckets_of(job_, pass_);
  const int64_t factor = draws_->ranks[member].late;
  const int64_t whole =
      slowed(compute_begin_[member], work_of(member, job_.backward_ns, pass_work_ns_, factor));
  const bool all_in_buckets = !buckets.empty() && buckets.back().ready_ns == job_.backward_ns;
  const int64_t own = all_in_buckets ? ready_[member] : std::max(ready_[member], whole);
  return std::max(own, arrival_[member]);
}

void Walk::end_pass() {
  const bool due = is_due(job_, pass_);
  for (size_t m = 0; m < members_.size() && !failure_; ++m) {
    const RankEvents& step = steps_[m];
    wait_[m] = computes(m) ? end_of_backward(m) : next_[m];
    next_[m] = wait_[m];
    if (due) next_[m] += step.wait_ns + (first_due_pass() ? step.once_wait_ns : 0);
  }
  if (exchanges_parts(job_) && !failure_) gather();
  for (size_t m = 0; m < members_.size() && !failure_; ++m)
    for (const auto* all : {&done_, &summed_})
      for (const auto& ends : *all) next_[m] = std::max(next_[m], ends[m]);
  trace_pass();
  if (failure_) return;
  if (job_.parts) exposed_ns_ += least_stall();
  compute_end_ = largest(wait_) - exposed_ns_;
  int64_t comm_end = 0;
  for (const Span& span : spans_) comm_end = std::max(comm_end, span.end_ns);
  exposed_ns_ += std::max<int64_t>(comm_end - largest(wait_), 0);
}

// A rank waits for one bucket after the other, adds its part and has it gathered.
void Walk::gather() {
  const auto& buckets = buckets_of(job_, pass_);
  for (size_t m = 0; m < members_.size() && !buckets.empty(); ++m) {
    early_[m] += next_[m] - arrival_[m];
    arrival_[m] = next_[m];
  }
  for (size_t b = 0; b < buckets.size() && !failure_; ++b) {
    for (size_t m = 0; m < members_.size(); ++m) {
      arrival_[m] = std::max(arrival_[m], done_[b][m]);
      early_[m] = std::max(early_[m], done_[b][m]);
    }
    launch(Operation::all_gather, buckets[b].bytes);
    meet(buckets.size() + b, Operation::all_gather, {kGather, buckets[b].bytes});
  }
}

// Every rank has updated its own parameters.
void Walk::average() {
  const auto level = averaging_after(job_, step_);
  if (!level) return;
  const Job& group = groups_[*level];
  arrival_ = early_ = launched_ = end_;
  for (size_t m = 0; m < members_.size(); ++m)
    launched_[m] +=
        queued_ns(steps_[m], sent_bytes(Operation::all_reduce, job_.averaged_bytes, group.ranks));
  const BucketWork work{kAverage, job_.averaged_bytes, 0, 0};
  const bool by_rank = static_cast<int64_t>(members_.size()) == job_.ranks;
  const size_t size = by_rank ? static_cast<size_t>(group.ranks) : members_.size();
  comm_.push_back({});
  for (size_t begin = 0; begin < members_.size() && !failure_; begin += size)
    average_group(group, work, {begin, begin + size}, &end_);
  average_ns_ = failure_ ? 0 : largest(end_) - largest(arrival_);
  if (trace_ == nullptr) return;
  trace_->average_ns = arrival_;
  trace_->averaged_ns = failure_ ? std::vector<int64_t>(members_.size(), kNever) : end_;
}

// Into `ends`, by member. Of all groups the one that ends last counts as communication.
void Walk::average_group(const Job& job, const BucketWork& work, Group group,
                         std::vector<int64_t>* ends) {
  if (wait_in_vain(work, group)) return;
  const auto part = [&](const std::vector<int64_t>& times) {
    return std::vector<int64_t>(times.begin() + static_cast<int64_t>(group.begin),
                                times.begin() + static_cast<int64_t>(group.end));
  };
  const std::vector<int64_t> arrivals = part(arrival_), starts = part(launched_);
  const std::vector<int64_t> of_group = ends_(job, starts, work.bytes);
  std::copy(of_group.begin(), of_group.end(), ends->begin() + static_cast<int64_t>(group.begin));
  if (time_out(work, *ends, group)) return;
  const int64_t first = *std::min_element(arrivals.begin(), arrivals.end());
  skew_ns_ = std::max(skew_ns_, largest(arrivals) - first);
  longest_ns_ = std::max(longest_ns_, largest(of_group) - first);
  const Span span{largest(arrivals), largest(of_group)};
  if (span.end_ns >= comm_.back().end_ns) comm_.back() = span;
}

StepNumbers Walk::end_step() {
  StepNumbers numbers;
  for (size_t m = 0; m < members_.size() && !failure_; ++m) {
    optimizer_[m] = next_[m];
    end_[m] = next_[m] + steps_[m].optimizer_ns + job_.optimizer_ns;
  }
  if (!failure_) average();
  if (!failure_) note_gone();
  trace_step();
  if (failure_) return numbers;
  numbers.end_ns = largest(end_);
  numbers.duration_ns = numbers.end_ns - last_end_;
  numbers.compute_ns = compute_end_ - last_end_;
  numbers.exposed_ns = exposed_ns_ + average_ns_;
  numbers.average_ns = average_ns_;
  numbers.skew_ns = skew_ns_;
  numbers.longest_ns = longest_ns_;
  int64_t covered = 0;
  for (const Span& span : comm_) {
    numbers.comm_ns += std::max<int64_t>(span.end_ns - std::max(span.begin_ns, covered), 0);
    covered = std::max(covered, span.end_ns);
  }
  last_end_ = numbers.end_ns;
  return numbers;
}

void Walk::trace_collective(Operation operation, const std::vector<int64_t>& ends) {
  if (trace_ == nullptr) return;
  PassTrace& trace = trace_->passes.back();
  if (operation == Operation::all_gather) {
    trace.gather_arrival_ns.push_back(arrival_);
    trace.gather_launched_ns.push_back(launched_);
    trace.gather_done_ns.push_back(ends);
    trace.gather_place.push_back(done_.size() + summed_.size());
    return;
  }
  if (operation == Operation::all_reduce && has_copies(job_)) {
    trace.summed_arrival_ns.push_back(arrival_);
    trace.summed_launched_ns.push_back(launched_);
    trace.summed_done_ns.push_back(ends);
    return;
  }
  trace.ready_ns.push_back(ready_);
  trace.arrival_ns.push_back(arrival_);
  trace.launched_ns.push_back(launched_);
  trace.done_ns.push_back(ends);
}

void Walk::trace_pass() {
  if (trace_ == nullptr) return;
  PassTrace& trace = trace_->passes.back();
  trace.forward_ns = forward_;
  trace.backward_ns = backward_;
  trace.wait_ns = wait_;
  for (size_t m = 0; m < members_.size(); ++m)
    if (!computes(m)) trace.forward_ns[m] = trace.backward_ns[m] = trace.wait_ns[m] = kNever;
}

void Walk::trace_step() {
  if (trace_ == nullptr) return;
  trace_->step = step_;
  trace_->begin_ns = begin_;
  trace_->optimizer_ns = optimizer_;
  trace_->end_ns = end_;
  trace_->failure = failure_;
}

}  // namespace lockstep
