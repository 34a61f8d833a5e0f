#include "sim/tools/explain/trace_overlap.h"

#include <algorithm>
#include <cmath>

#include "sim/analysis/timeline.h"

namespace lockstep {
namespace {

std::vector<Interval> in_ns(const std::vector<TraceInterval>& all) {
  std::vector<Interval> converted;
  for (const TraceInterval& one : all)
    converted.push_back({std::llround(one.begin_us * 1e3), std::llround(one.end_us * 1e3)});
  return converted;
}

}  // namespace

TraceShare share_of(const KinetoTrace& trace) {
  TraceShare share;
  share.rank = trace.rank;
  share.file = trace.file;
  share.on_gpu = trace.on_gpu;
  share.steps = static_cast<int64_t>(trace.steps.size());
  const double per_step_ms = 1e-6 / static_cast<double>(std::max<int64_t>(1, share.steps));
  double steps_us = 0;
  for (const TraceInterval& step : trace.steps) steps_us += step.end_us - step.begin_us;
  if (share.steps > 0) share.step_ms = steps_us * 1e3 * per_step_ms;
  const auto compute = merged(in_ns(trace.compute));
  const auto communication = merged(in_ns(trace.communication));
  const auto communication_ns = static_cast<double>(length_ns(communication));
  const auto overlapped_ns = static_cast<double>(length_ns(intersection(compute, communication)));
  share.compute_ms = static_cast<double>(length_ns(compute)) * per_step_ms;
  share.communication_ms = communication_ns * per_step_ms;
  share.exposed_ms = (communication_ns - overlapped_ns) * per_step_ms;
  if (communication_ns > 0) share.overlap_percent = 100 * overlapped_ns / communication_ns;
  share.collectives = static_cast<int64_t>(trace.calls.size());
  return share;
}

}  // namespace lockstep
