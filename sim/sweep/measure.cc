#include "sim/sweep/measure.h"

#include <algorithm>
#include <string_view>

#include "sim/judge/what_if.h"
#include "sim/sweep/statistics.h"

namespace lockstep {
namespace {

double ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

double backward_ms(const Step& step) {
  double sum = 0;
  for (const RankStep& rank : step.ranks)
    for (const PhaseInterval& phase : rank.phases)
      if (phase.phase == Phase::backward || phase.phase == Phase::wait)
        sum += ms(phase.time.length_ns());
  return sum / static_cast<double>(step.ranks.size());
}

template <class Get>
double mean_over_ranks(const StepMetrics& step, Get get) {
  double sum = 0;
  for (const RankNumbers& rank : step.ranks) sum += get(rank);
  return sum / static_cast<double>(step.ranks.size());
}

// Reducers without buckets have none: theirs are the sums of gradients after the forward.
bool is_gradient(const Collective& b) {
  if (b.bucket >= 0) return true;
  const std::string_view operation = operation_of(b);
  return operation == "all_reduce" || operation == "reduce_scatter";
}

void add_buckets(const Timeline& timeline, const Step& step, RunNumbers* numbers) {
  bool any_bucket = false;
  for (const size_t place : step.collectives)
    any_bucket = any_bucket || timeline.collectives[place].bucket >= 0;
  for (const size_t place : step.collectives) {
    const Collective& b = timeline.collectives[place];
    if (any_bucket ? b.bucket < 0 : !is_gradient(b)) continue;
    ++numbers->buckets;
    numbers->tail_mb = static_cast<double>(b.bytes) * 1e-6;
  }
}

}  // namespace

std::optional<RunNumbers> numbers_of(const RunResult& run, int64_t warmup) {
  if (!run.metrics || !run.intervals) return std::nullopt;
  std::vector<double> steps, backwards, exposed, skews, overlaps;
  for (const StepMetrics& step : run.metrics->per_step) {
    if (step.step <= warmup) continue;
    steps.push_back(mean_over_ranks(step, [](const RankNumbers& r) { return r.step_ms; }));
    exposed.push_back(mean_over_ranks(step, [](const RankNumbers& r) { return r.exposed_ms; }));
    skews.push_back(step.skew_ms);
    double comm_ms = 0, overlapped_ms = 0;
    for (const RankNumbers& rank : step.ranks) {
      comm_ms += rank.comm_ms;
      overlapped_ms += rank.overlapped_ms;
    }
    if (comm_ms > 0) overlaps.push_back(overlapped_ms / comm_ms);
  }
  for (const Step& step : run.intervals->steps)
    if (step.step > warmup) backwards.push_back(backward_ms(step));
  if (steps.empty() || backwards.empty()) return std::nullopt;
  RunNumbers numbers;
  numbers.step_ms = median_of(steps);
  numbers.backward_ms = median_of(backwards);
  numbers.exposed_ms = median_of(exposed);
  numbers.skew_ms = median_of(skews);
  if (!overlaps.empty()) numbers.overlap = median_of(overlaps);
  numbers.steps = static_cast<int64_t>(steps.size());
  numbers.outlier_steps = static_cast<int64_t>(outliers(steps).size());
  add_buckets(*run.intervals, run.intervals->steps.back(), &numbers);
  return numbers;
}

}  // namespace lockstep
