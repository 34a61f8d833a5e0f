#pragma once

#include <vector>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"

namespace lockstep {

// Ranks whose dump may be of another run: one that left none in this run may have left one in the
// run before, below the same name. Its newest call is hours from the middle rank's (more than two
// time-outs), and no clock that is so far apart explains the two: they are not about as far, or
// their calls are not the same time apart.
RankSet of_other_runs(const std::vector<FlightDump>& dumps);

}  // namespace lockstep
