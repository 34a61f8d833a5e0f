#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/des/job.h"
#include "sim/des/simulate.h"

namespace lockstep {

// Ranks that are one to an engine: a single one, or all that nothing tells apart but their noise.
struct Member {
  int64_t rank = 0;  // the first
  int64_t count = 1;
  bool touched = false;                             // the schedule may say something of it
  std::vector<std::pair<int64_t, int64_t>> ranges;  // [begin, end), ascending
};

std::vector<Member> each_rank(const Job& job);
// The touched ranks one by one, and all others together, by their first rank.
std::vector<Member> classes_of(const Job& job);

// Do ranks that differ by their noise alone come out of each step at the same time? They must, to
// be one class: each step ends in a collective that all of them wait for.
bool noise_ends_together(const Job& job);
// Do groups average parameters of which some have a touched rank, and others none?
bool groups_differ(const Job& job);

// The compute factors of the member that is latest and the one that is earliest.
struct Factors {
  int64_t late = kOne, early = kOne;
};
// Of one pass: by member, or with noise per bucket by bucket and member; by member as well where
// no bucket is communicated.
struct Draws {
  std::vector<Factors> ranks;
  std::vector<std::vector<Factors>> buckets;
};
// By looking at every rank's number.
Draws draws_of(const Job& job, const std::vector<Member>& members, int64_t pass);
// By one draw of the largest and one of the least of so many: L4. Of `count` independent numbers
// the largest is below u with probability u^count.
Draws order_statistics(const Job& job, const std::vector<Member>& members, int64_t pass);

// Starts by member -> ends by member, of a collective of so many bytes. Of the job its ranks, cost
// and links count: it may be that of a group.
using CollectiveEnds = std::function<std::vector<int64_t>(
    const Job& job, const std::vector<int64_t>& starts, int64_t bytes)>;

// All members' way through a job, step by step, as a max-plus sum: a rank's bucket is ready when
// its compute has come so far, no bucket is launched before the one before it, each collective
// starts when a channel is free, and a pass ends when its own compute and all its collectives have.
// Of a member that stands for many ranks the latest of them decides, and the earliest is kept for
// skew and time-outs.
class Walk {
 public:
  Walk(const Job& job, std::vector<Member> members, CollectiveEnds ends);

  // Other members from the next step on; all so far must have left the last one together, and none
  // be gone (fronts.h).
  void regroup(std::vector<Member> members);

  // The next step, with the draws of its passes. With a trace, everything of it. After a failure
  // there is none.
  StepNumbers step(std::span<const Draws> draws, StepTrace* trace);
  const std::optional<SimulatedFailure>& failure() const { return failure_; }
  // The failure again, of the same step with each rank as a member of its own: which of many alike
  // ranks was the one. By formula, of a job whose noise is drawn by rank.
  std::optional<SimulatedFailure> failure_by_rank() const;

 private:
  struct Span {
    int64_t begin_ns = 0, end_ns = 0;
  };
  // Of members [begin, end) every `step`-th takes part in a collective.
  struct Group {
    size_t begin = 0, end = 0, step = 1;
  };
  // In place of a bucket: what ranks do together beside them.
  static constexpr int64_t kRebuild = -1, kAverage = -2, kGather = -3, kForwardUnit = -4,
                           kBackwardUnit = -5;
  void take(std::vector<Member> members, int64_t end_ns);
  Group all() const { return {0, members_.size()}; }
  void pass(const Draws& draws);
  void communicate();
  void pass_through_units();
  void begin_units();
  void forward_units();
  void backward_units();
  // How far compute has come: of forward, of backward with DDP's own work, and of the latter by
  // what is ready then (-1: it has not begun).
  struct Progress {
    int64_t forward_ns = 0, backward_ns = 0, ready_ns = -1;
  };
  void compute_until(const Progress& to);
  void forward_until(int64_t forward_ns);
  void backward_until(int64_t ready_ns);
  void gather_unit(size_t unit, int64_t kind);
  void wait_for_unit();
  void reduce_unit(const BucketWork& work);
  std::vector<Group> groups_in(Operation operation) const;
  void meet_in_groups(Operation operation, const BucketWork& work);
  // Of a collective on the wire, and from the last rank's arrival.
  struct Spans {
    Span on_wire, from_last;
  };
  bool meet_group(Operation operation, const BucketWork& work, Group group,
                  const std::vector<int64_t>& starts, std::vector<int64_t>* ends, Spans* last);
  void note(const Spans& last);
  void sum_between_copies(const BucketWork& work);
  int64_t least_stall() const;
  void begin_compute();
  void rebuild();
  void compute_bucket(size_t place, const BucketWork& work);
  void launch(Operation operation, int64_t bytes);
  void meet(size_t place, Operation operation, const BucketWork& work);
  void share(size_t place, int64_t wire_ns, int64_t start_ns, std::vector<int64_t>* ends) const;
  void end_pass();
  void gather();
  void average();
  void average_group(const Job& job, const BucketWork& work, Group group,
                     std::vector<int64_t>* ends);
  StepNumbers end_step();
  // Of the step, from 1; a rank with fewer virtual shards than others has its first one later.
  int64_t pass_of_step() const { return (pass_ - 1) % job_.passes + 1; }
  bool first_pass() const { return pass_of_step() == 1; }
  bool first_pass(size_t member) const { return pass_of_step() == first_passes_[member]; }
  bool computes(size_t member) const { return pass_of_step() >= first_passes_[member]; }
  // Of those that communicate, or would but for local SGD.
  bool first_due_pass() const { return job_.each_pass ? first_pass() : true; }
  int64_t slowed(int64_t begin_ns, int64_t work_ns, int64_t also_from_ns = kNever) const;
  int64_t compute_ends_beside(int64_t start_ns) const;
  int64_t stretched(int64_t begin_ns, int64_t transfer_ns, int64_t compute_end_ns) const;
  // Of backward until it has come to ready_ns, with so much of DDP's own work.
  int64_t work_of(size_t member, int64_t ready_ns, int64_t bucket_work_ns, int64_t factor) const;
  int64_t end_of_backward(size_t member);
  int64_t pauses_before(size_t member, int64_t ready_ns) const;
  bool is_gone(size_t member, int64_t bucket) const;
  // Of one that is gone, or goes in this step.
  std::optional<RankEvents::End> end_of(size_t member) const;
  int64_t gone_since(size_t member) const;
  void note_gone();
  bool wait_in_vain(const BucketWork& work, Group group);
  bool only_seems_late();
  size_t latest(const std::vector<int64_t>& times, Group group) const;
  bool time_out(const BucketWork& work, const std::vector<int64_t>& ends, Group group);
  void fail(EndedBy cause, size_t member, const BucketWork& work, int64_t known_ns);
  void trace_collective(Operation operation, const std::vector<int64_t>& ends);
  void trace_pass();
  void trace_step();

  const Job& job_;
  std::vector<Member> members_;
  const CollectiveEnds ends_;
  std::vector<Job> groups_;  // by level of averaging: what a group's collective costs
  int64_t step_ = 0, pass_ = 0;
  std::optional<SimulatedFailure> failure_;
  int64_t looked_at_ = 0;  // the step of which fails_by_rank_ tells
  bool fails_by_rank_ = false;

  // By member, of the step and the pass under way.
  std::vector<RankEvents> steps_;
  std::vector<int64_t> first_passes_;
  std::vector<int64_t> begin_, next_, forward_, backward_, compute_begin_, wait_, optimizer_, end_;
  std::vector<int64_t> first_forward_, first_backward_;  // of the step's first pass
  std::vector<int64_t> ready_, arrival_, early_, queue_free_, launched_, early_begin_;
  struct Gone {
    RankEvents::End end;
    int64_t at_ns = 0;
  };
  std::vector<std::optional<Gone>> gone_;  // since an earlier step
  // Of parameters in parts, by member: how far compute has come, of the latest and the earliest of
  // its ranks; how long it was paused, and how long it waited for units.
  std::vector<int64_t> now_, early_now_, paused_, stalled_;
  Progress computed_;
  std::vector<size_t> gathered_;  // the places of the pass's gathers that were not waited for
  // By place of the collective in the pass.
  std::vector<std::vector<int64_t>> done_;
  std::vector<std::vector<int64_t>> summed_;  // of all-reduces between copies with own links
  std::vector<Span> spans_;                   // of the pass: on the wire
  std::vector<Span> comm_;                    // of the step: from the last rank's arrival
  int64_t worked_ns_ = 0, pass_work_ns_ = 0;  // DDP's own work: so far in the pass, and in all
  int64_t last_end_ = 0, skew_ns_ = 0, longest_ns_ = 0, compute_end_ = 0, exposed_ns_ = 0,
          average_ns_ = 0;
  const Draws* draws_ = nullptr;  // of the pass under way
  StepTrace* trace_ = nullptr;
};

}  // namespace lockstep
