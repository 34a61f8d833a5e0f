#pragma once

#include <functional>
#include <string>

#include "sim/plan/plan.h"
#include "sim/tools/explore/result.h"
#include "sim/tools/explore/shrink.h"

namespace lockstep {

// Shrinks the schedule `script` of `plan`, which fails with a finding of this kind, and traces what
// is left. decisions: about how many a schedule of the plan has. Until is_late() or kTrialsMax.
SmallestCase smallest_case(const RunPlan& plan, const ExploreSpec& spec, int64_t decisions,
                           const std::string& kind, const Script& script, int cpu,
                           const std::function<bool()>& is_late);

// What goes on while schedules are explored. One thread calls.
struct ExploreWatch {
  std::function<void(int64_t explored)> progress;  // every now and then
  std::function<int()> signal;                     // that asks to stop; 0: none
};

// Runs schedules of an explorable() plan as the spec says, in groups side by side, one a processor;
// then shrinks what it found. Blocks until done. Drawn schedules have the same findings whatever
// the number of groups: which schedules are run past the first finding depends on it, not which
// finding is reported. Throws std::exception.
ExploreResult explore_schedules(const RunPlan& plan, const ExploreSpec& spec,
                                const ExploreWatch& watch);

// The worker's side of `lockstep explore`: reads {"plan", "spec"} from `file` and prints lines of
// JSON: {"explored": n} as it goes on, {"result": ...} last. Returns the exit code of the process.
int run_explore(const std::string& file);

}  // namespace lockstep
