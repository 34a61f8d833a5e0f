#pragma once

#include <optional>
#include <vector>

#include "sim/tools/explain/arrival_steps.h"
#include "sim/tools/explain/attribution.h"

namespace lockstep {

// A group in which a rank is a straggler, and by whose arrivals.
struct LateIn {
  FlightFinding found;
  GroupArrivals arrivals;
};

// Who waits for a straggler in one group, comes late to what it does in others. Of several groups
// in which ranks are late, the one straggler for whom all the other late ones wait elsewhere, seven
// tenths as long at least as they are late; none where none or several are, where a group is
// undecided, or where clocks may be apart, so that waiting of one rank cannot be held against
// lateness of another.
std::optional<FlightFinding> straggler_behind(const std::vector<LateIn>& all, bool clocks_agree);

}  // namespace lockstep
