#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"

namespace lockstep {

// The picture of --html: when each rank called each collective, sent and received, as its dump has
// it, in the format of sim/report/html/timeline.h. It opens at the last calls before the failure,
// the guilty ranks marked. Times are those of each rank's own clock. A dump does not say when a
// collective ended: one that is done is drawn to the moment at which the last of its ranks came.
// Only ranks of whose calls in a group the dump tells are said to have missed one.
//
// Nothing where no dump holds a call with a time, or of a rank beyond `most`, which only a name can
// make up. `most`: ranks that enter a collective, added up; the oldest calls are left out beyond
// it.
std::optional<std::string> flight_timeline(const std::vector<FlightDump>& dumps,
                                           const FlightFinding& found, int64_t most = 200'000);

}  // namespace lockstep
