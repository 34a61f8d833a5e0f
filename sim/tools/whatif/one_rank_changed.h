#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/analysis/step_model.h"

namespace lockstep {

// What a step takes with other durations of one rank, asked for many ranks in turn. How the begin
// of each collective follows from those before it on all ranks is looked at once: each rank's
// longest ways from begin to begin, and of these the longest two, so that any one rank can be left
// out. A question then follows one rank alone: O(ranks) for all of them, not O(ranks^2).
class OneRankChanged {
 public:
  explicit OneRankChanged(const StepModel& model);  // which must outlive this; two ranks at least

  // By slot and by transfer.
  struct Durations {
    std::vector<double> work_ns, delay_ns;
  };
  Durations own(size_t rank) const;
  // The mean and the median of the other ranks', as StepModel::without() has them.
  Durations of_others(size_t rank) const;

  double step_ns(size_t rank, const Durations& durations) const;

  // Sums and comparisons so far: what tests count instead of time.
  int64_t operations() const { return operations_; }

 private:
  // From a source, the step's begin (0) or the begin of the collective before `from`, to a target:
  // the longest way on any rank, and on any other than that.
  struct Way {
    size_t from = 0, rank = 0;
    double longest_ns = 0, second_ns = 0;
  };
  using Ways = std::vector<Way>;
  using Form = std::vector<double>;  // by source; minus infinity: no way

  void follow(size_t rank);
  void take(const Form& form, size_t rank, Ways* ways);
  double latest(const Ways& ways, size_t without, const std::vector<double>& begins) const;

  const StepModel& model_;
  std::vector<Ways> to_begin_;  // by transfer
  Ways to_end_;
  std::vector<double> work_sums_;               // by slot
  std::vector<MediansOfOthers> delay_medians_;  // by transfer
  mutable int64_t operations_ = 0;
};

}  // namespace lockstep
