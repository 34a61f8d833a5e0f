#pragma once

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/sources.h"

namespace lockstep {

// What dumps and logs of one job say together. A rank that reports a time-out or a lost peer is a
// victim. Named is who died by itself before it lost anybody; who is behind by sequence number
// while others wait; who left no dump and reported nothing where all others of the job did; whom
// all of those miss in a barrier. Where dumps and logs disagree, and where several died and nothing
// says which first, nobody is.
FlightFinding attribute_job(const JobEvidence& job);

}  // namespace lockstep
