#pragma once

#include <string_view>
#include <vector>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"

namespace lockstep {

struct ArrivalClocks {
  bool agree = false;                // as in traces, whose times are those of what ran
  std::string_view source = "dump";  // what tells of a rank
};

// Of dumps in which no rank waits for another: is a rank late to the collectives of each step, so
// that the others wait? Writes class, guilty, lateness and slowdown, or why it is not decided, into
// `finding`; leaves it alone where nobody is.
//
// A step is the shortest stretch after which calls and the gaps between them repeat, six times at
// least. Lateness is how much later than the middle rank one calls the collective of the step in
// which that shows most; the slowdown T / (T - lateness), T being the time of a step. Named is who
// is late in four of five steps with a slowdown of 1.08 or more, and for whom the last of those
// that are not late waits, longer than chance explains (1 in 50,000). A rank whose clock is ahead
// looks the same, unless it comes in time to another collective of the step, or to most of those
// outside of the steps, or where clocks are known to agree: else it is undecided, as where ranks
// take turns, half of more than two ranks are late, steps are too few, or a dump is missing.
// Dumps have the times of calls, which NCCL only queues: a rank that waits for its GPU in each step
// (loss.item() on one of them) calls the first collective of a step after the others and keeps
// nobody waiting. So over NCCL a rank that is late there already is undecided, unless dumps tell
// how long GPUs ran in each call: then these decide (arrival_runs.h), and a GPU that is late while
// its host is not is found as well. Returns whether any group had steps enough to tell.
bool find_late_arrivals(const std::vector<FlightDump>& dumps, FlightFinding* finding,
                        const ArrivalClocks& clocks = {});

}  // namespace lockstep
