#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/flight_groups.h"

namespace lockstep {

// Who came later than the time-out of who came first, after clocks were aligned by the collectives
// before.

using CallTimes = std::map<int64_t, std::map<int64_t, int64_t>>;  // by rank, by sequence number
CallTimes call_times(const GroupRecord& group);

struct FlightLateness {
  RankSet ranks;
  bool aligned = true;                  // clocks were, of all these ranks
  int64_t first_ns = 0, newest_ns = 0;  // when one of them came, by the clock of who came first
};

// `created`: when ranks of the group called its collectives.
FlightLateness lateness_for(const std::map<std::string, GroupRecord>& groups,
                            const GroupRecord& group, const std::vector<FlightArrival>& arrivals,
                            const FlightArrival& first, CallTimes* created);

// The median, where most are no further from it than the tolerance; none of fewer than two.
std::optional<int64_t> usual_difference(const std::vector<int64_t>& differences,
                                        int64_t tolerance_ns);

// Did the first rank call anything after the late ones had come? Those that had timed out would not
// have: then these came in time after all.
bool went_on(const GroupRecord& group, int64_t sequence, int64_t first_rank, int64_t late_ns);

}  // namespace lockstep
