#pragma once

#include <functional>
#include <string>

#include "sim/explore/result.h"
#include "sim/explore/shrink.h"
#include "sim/plan/plan.h"

namespace lockstep {

// Shrinks the schedule `script` of `plan`, which fails with a finding of this kind, and traces what
// is left. decisions: about how many a schedule of the plan has. Until is_late() or kTrialsMax.
SmallestCase smallest_case(const RunPlan& plan, const ExploreSpec& spec, int64_t decisions,
                           const std::string& kind, const Script& script, int cpu,
                           const std::function<bool()>& is_late);

}  // namespace lockstep
