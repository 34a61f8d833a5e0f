#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/profiler/kineto_trace.h"
#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/trace_overlap.h"

namespace lockstep {

// Of the traces of one job's ranks: who comes late to the collectives of each step, so that the
// others wait in them (late_arrivals.h)? A collective's kernel, or Gloo's thread, begins when its
// rank comes and ends when all are through: by these ends the ranks' clocks are aligned, group by
// group. Calls of a group are paired by number, else in their order, which must be the same on all
// ranks; where one rank's trace begins or ends some calls later, by the place where ends agree
// best. Writes waiting_ms of each share, and into `finding` who is late, or what keeps that
// undecided. `shares`: of each trace, in the same order.
void find_late_in_traces(const std::vector<KinetoTrace>& traces, std::vector<TraceShare>* shares,
                         FlightFinding* finding);

}  // namespace lockstep
