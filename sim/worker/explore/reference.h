#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/workloads/workload.h"
#include "sim/explore/scheduler.h"
#include "sim/plan/plan.h"

namespace lockstep {

// The bits that weights and averaged gradients must have after each step, on every rank.
class ExploreReference {
 public:
  // From the replay golden run, where the plan has one.
  explicit ExploreReference(const RunPlan& plan);
  // replay, or usual: what remember() was given.
  const std::string& kind() const { return kind_; }
  // Without a golden run: rank 0's state of the usual schedule is what all others must have.
  void remember(int64_t step, const Training& training);
  bool knows(int64_t step) const { return static_cast<size_t>(step) <= steps_.size(); }

  // What differs after `step`: nothing mostly, which costs one hash. failure->kind is
  // use_before_completion where the run has NaN and the reference has a number.
  std::optional<ScheduleFailure> difference(int64_t rank, int64_t step,
                                            const Training& training) const;

 private:
  struct Values {
    uint64_t hash = 0;
    std::vector<std::byte> bytes;  // of all tensors, one after another
  };
  void load_golden(const RunPlan& plan);

  std::string kind_ = "usual";
  std::vector<Values> steps_;
};

}  // namespace lockstep
