#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/des/job.h"
#include "sim/des/members.h"
#include "sim/des/result.h"

namespace lockstep {

// Starts by member -> ends by member, of a collective of so many bytes.
using CollectiveEnds =
    std::function<std::vector<int64_t>(const std::vector<int64_t>& starts, int64_t bytes)>;

// All members' way through a job, step by step, as a max-plus sum: a rank's bucket is ready when
// its compute has come so far, no bucket is launched before the one before it, each collective
// starts when a channel is free, and a step ends when its own compute and all its collectives have.
// Of a member that stands for many ranks the latest of them decides, and the earliest is kept for
// skew and time-outs.
class Walk {
 public:
  Walk(const Job& job, std::vector<Member> members, CollectiveEnds ends);

  // The next step, with its draws. With a trace, everything of it. After a failure there is none.
  StepNumbers step(const Draws& draws, StepTrace* trace);
  const std::optional<SimulatedFailure>& failure() const { return failure_; }

 private:
  struct Span {
    int64_t begin_ns = 0, end_ns = 0;
  };
  void begin_compute(const Draws& draws);
  void rebuild();
  void compute_bucket(size_t place, const BucketWork& work, const Draws& draws);
  void launch(const BucketWork& work);
  void reduce(size_t place, const BucketWork& work);
  StepNumbers end_step();
  int64_t slowed(int64_t begin_ns, int64_t work_ns) const;
  int64_t work_of(size_t member, int64_t ready_ns, int64_t factor) const;
  int64_t end_of_backward(size_t member);
  bool is_gone(size_t member, int64_t bucket) const;
  bool wait_in_vain(const BucketWork& work);
  bool time_out(const BucketWork& work, const std::vector<int64_t>& ends);
  void fail(size_t member, const BucketWork& work, bool dead, int64_t at_ns, int64_t known_ns);
  void trace_collective(const std::vector<int64_t>& ends);
  void trace_step();

  const Job& job_;
  const std::vector<Member> members_;
  const CollectiveEnds ends_;
  int64_t step_ = 0;
  std::optional<SimulatedFailure> failure_;

  // By member, of the step under way.
  std::vector<RankEvents> steps_;
  std::vector<int64_t> begin_, forward_, backward_, compute_begin_, wait_, optimizer_, end_;
  std::vector<int64_t> ready_, arrival_, early_, queue_free_, launched_, early_begin_;
  std::vector<bool> gone_;  // since an earlier step
  // By place of the collective.
  std::vector<std::vector<int64_t>> done_;
  std::vector<Span> spans_, comm_;  // on the wire; from the last rank's arrival
  int64_t last_end_ = 0, skew_ns_ = 0;
  const Draws* draws_ = nullptr;  // of the step under way
  StepTrace* trace_ = nullptr;
};

}  // namespace lockstep
