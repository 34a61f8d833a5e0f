#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"

namespace lockstep {

// Of a pipeline's stages, which send each other what they compute, one is last in each step by
// design: that of `late`, in the calls of the group that has `ranks`? What says so, or empty.
std::string told_stages(const RankSet& ranks, const RankSet& late,
                        const std::vector<FlightDump>& dumps);

// Sends and receives of the rank that are not in its dump: all of them, also before what its ring
// holds.
int64_t unrecorded_transfers(const FlightDump& dump);

}  // namespace lockstep
