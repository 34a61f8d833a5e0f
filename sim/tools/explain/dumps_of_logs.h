#pragma once

#include <vector>

#include "sim/tools/explain/dump.h"
#include "sim/tools/explain/sources.h"

namespace lockstep {

// The dumps of a job, and of each rank that only a log tells of the part of one that the log holds;
// by rank.
std::vector<FlightDump> with_logs(const JobEvidence& job);

}  // namespace lockstep
