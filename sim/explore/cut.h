#pragma once

#include <optional>

#include "sim/explore/shrink.h"
#include "sim/plan/plan.h"

namespace lockstep {

// The plan as its schedules are explored: over the scheduled communicator, which adds in the order
// of the scenario's own algorithm, with the replay golden run beside it where there can be one. Bad
// input: what has no schedules to explore (processes, time, files).
Expected<RunPlan> explorable(const RunPlan& plan);

// The plan cut down: its first steps, on its first ranks with the samples that each has, with the
// other parameters frozen. `parameters`: all that `plan` trains. Nothing where that cannot be.
std::optional<RunPlan> cut_down(const RunPlan& plan, const ExploreCase& to,
                                const std::vector<std::string>& parameters);

}  // namespace lockstep
