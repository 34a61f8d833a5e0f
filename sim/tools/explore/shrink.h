#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/tools/explore/scheduler.h"

namespace lockstep {

// A scenario cut down.
struct ExploreCase {
  int64_t steps = 1;
  int64_t world_size = 2;
  std::vector<std::string> parameters;  // that are trained
};

// Where failing schedules are tried out; what counts as the failure that is looked for is its
// business. Both give the choices of a schedule that fails, which may be fewer than the script
// asked for; nothing if none does, or the case cannot be.
class ShrinkLab {
 public:
  virtual ~ShrinkLab() = default;
  // A failing schedule of the case that is close to the usual one, within some bound.
  virtual std::optional<std::vector<Choice>> search(const ExploreCase& tried) = 0;
  // The schedule of this script.
  virtual std::optional<std::vector<Choice>> run(const ExploreCase& tried,
                                                 const Script& script) = 0;
  // True: stop here, with what is known.
  virtual bool is_late() = 0;
};

struct Shrunk {
  ExploreCase smallest;
  Script script;
};

// From a failing schedule to a small one: fewer steps, then ranks, then parameters (each as far as
// a search still finds the failure), then fewer decisions that are not the usual ones (each is
// needed: without it the failure is gone). Taking a decision away renumbers those behind it, so
// that what is left may mean something else; a search from scratch is tried too.
Shrunk shrink(ShrinkLab& lab, ExploreCase from, const Script& script);

// The plan as its schedules are explored: over the scheduled communicator, which adds in the order
// of the scenario's own algorithm, with the replay golden run beside it where there can be one. Bad
// input: what has no schedules to explore (processes, time, files).
Expected<RunPlan> explorable(const RunPlan& plan);

// The plan cut down: its first steps, on its first ranks with the samples that each has, with the
// other parameters frozen. `parameters`: all that `plan` trains. Nothing where that cannot be.
std::optional<RunPlan> cut_down(const RunPlan& plan, const ExploreCase& to,
                                const std::vector<std::string>& parameters);

}  // namespace lockstep
