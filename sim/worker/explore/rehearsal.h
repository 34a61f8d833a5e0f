#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "reducer/reducer.h"
#include "sim/explore/cut.h"
#include "sim/worker/explore/reference.h"
#include "sim/worker/explore/scheduled_hub.h"

namespace lockstep {

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
