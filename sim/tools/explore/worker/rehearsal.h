#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "golden/golden_run.h"
#include "reducer/reducer.h"
#include "scenarios/workloads/workload.h"
#include "sim/plan/plan.h"
#include "sim/tools/explore/scheduler.h"
#include "sim/tools/explore/shrink.h"
#include "sim/tools/explore/worker/scheduled_hub.h"

namespace lockstep {

// The bits that weights and averaged gradients must have after each step, on every rank.
class ExploreReference {
 public:
  // From the golden run replay or invariant, where the plan has one.
  explicit ExploreReference(const RunPlan& plan);
  // replay, invariant, or usual: what remember() was given.
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
  void load_golden(const RunPlan& plan, GoldenKind kind);

  std::string kind_ = "usual";
  std::vector<Values> steps_;
};

// One group of ranks that trains the same plan again and again, each time from the same weights and
// under another schedule. Threads, models and samples are made once; what a schedule changes is put
// back before the next one, and reducer and optimizer are made anew. One thread at a time calls.
class Rehearsal {
 public:
  // plan: explorable(). cpu: see Scheduler. The reference must outlive this object.
  Rehearsal(const RunPlan& plan, ExploreReference& reference, int cpu);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // Trains under the schedule that the chooser makes; what was wrong, if anything. Blocks.
  std::optional<ScheduleFailure> run(Chooser& chooser, bool traced = false);
  // Of the last schedule.
  const std::vector<Choice>& choices() const { return scheduler_.choices(); }
  const std::vector<ScheduledAct>& acts() const { return scheduler_.acts(); }
  int64_t points() const { return scheduler_.points(); }
  // Names of the parameters that are trained, each tensor once.
  std::vector<std::string> trained_parameters() const;

 private:
  struct Rank;
  class Run;

  void put_back(Rank& rank);

  const RunPlan plan_;
  ExploreReference& reference_;
  Scheduler scheduler_;
  ScheduledHub hub_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace lockstep
