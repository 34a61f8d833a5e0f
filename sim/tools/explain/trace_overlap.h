#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/profiler/kineto_trace.h"

namespace lockstep {

// One rank's share of a trace; times are those of a step on average, or of the whole trace where it
// marks no steps.
struct TraceShare {
  int64_t rank = -1;
  std::string file;
  bool on_gpu = false;
  int64_t steps = 0;  // marked; 0: none
  std::optional<double> step_ms;
  double compute_ms = 0, communication_ms = 0;
  double exposed_ms = 0;                  // of communication, with no computing beside it
  std::optional<double> overlap_percent;  // of communication; absent where there is none
  int64_t collectives = 0;                // of the whole trace, sends and receives, too
  std::optional<double> waiting_ms;       // within collectives, for the last rank to enter them
};

// Overlap is the time in which both are going on, over all time of communication, as
// HolisticTraceAnalysis defines it; what runs at once on several streams or threads counts once.
TraceShare share_of(const KinetoTrace& trace);

}  // namespace lockstep
