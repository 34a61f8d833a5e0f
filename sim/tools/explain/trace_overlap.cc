#include "sim/tools/explain/trace_overlap.h"

#include <algorithm>

namespace lockstep {
namespace {

// Sorted and apart.
std::vector<TraceInterval> merged(std::vector<TraceInterval> all) {
  std::sort(all.begin(), all.end(),
            [](const TraceInterval& a, const TraceInterval& b) { return a.begin_us < b.begin_us; });
  std::vector<TraceInterval> apart;
  for (const TraceInterval& one : all) {
    if (apart.empty() || one.begin_us > apart.back().end_us)
      apart.push_back(one);
    else
      apart.back().end_us = std::max(apart.back().end_us, one.end_us);
  }
  return apart;
}

double length_us(const std::vector<TraceInterval>& all) {
  double sum = 0;
  for (const TraceInterval& one : all) sum += one.end_us - one.begin_us;
  return sum;
}

double common_us(const std::vector<TraceInterval>& a, const std::vector<TraceInterval>& b) {
  double sum = 0;
  for (auto one = a.begin(), other = b.begin(); one != a.end() && other != b.end();) {
    const double begin = std::max(one->begin_us, other->begin_us);
    const double end = std::min(one->end_us, other->end_us);
    sum += std::max(0.0, end - begin);
    ++(one->end_us < other->end_us ? one : other);
  }
  return sum;
}

}  // namespace

TraceShare share_of(const KinetoTrace& trace) {
  TraceShare share;
  share.rank = trace.rank;
  share.file = trace.file;
  share.on_gpu = trace.on_gpu;
  share.steps = static_cast<int64_t>(trace.steps.size());
  const double per_step_ms = 1e-3 / static_cast<double>(std::max<int64_t>(1, share.steps));
  if (share.steps > 0) share.step_ms = length_us(trace.steps) * per_step_ms;
  const auto compute = merged(trace.compute), communication = merged(trace.communication);
  const double communication_us = length_us(communication);
  const double overlapped_us = common_us(compute, communication);
  share.compute_ms = length_us(compute) * per_step_ms;
  share.communication_ms = communication_us * per_step_ms;
  share.exposed_ms = (communication_us - overlapped_us) * per_step_ms;
  if (communication_us > 0) share.overlap_percent = 100 * overlapped_us / communication_us;
  share.collectives = static_cast<int64_t>(trace.calls.size());
  return share;
}

}  // namespace lockstep
