#pragma once

#include <functional>
#include <string>

#include "sim/explore/result.h"
#include "sim/launch/signals.h"
#include "sim/plan/plan.h"

namespace lockstep {

// Starts `worker`, which explores schedules of the plan, and waits for its result; what cannot be
// is in result.broken. `progress`: schedules so far. A signal that asks to stop is passed on. A
// worker that says nothing for a minute is ended.
ExploreResult explore_in_worker(const std::string& worker, const RunPlan& plan,
                                const ExploreSpec& spec, Signals& signals,
                                const std::function<void(int64_t)>& progress);

}  // namespace lockstep
