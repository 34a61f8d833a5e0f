#pragma once

#include <cstdint>
#include <map>

#include "sim/tools/explain/flight_groups.h"

namespace lockstep {

// Nanoseconds by which ranks' clocks are ahead of the middle one, of those ranks whose clock is
// more than a second from it: the usual difference at the collectives that ranks called together,
// where most of them agree to half a second; through other ranks, where two have none in common.
// Less may be a rank that is late, and stays.
std::map<int64_t, int64_t> clocks_ahead(const std::map<std::string, GroupRecord>& groups);

}  // namespace lockstep
