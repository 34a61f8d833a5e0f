#pragma once

#include <cstdint>
#include <optional>

#include "sim/judge/judge.h"

namespace lockstep {

// What a sweep takes from the records of one run: medians over its steps after `warmup` (a step's
// number is the mean of its ranks'), by the formulas of docs/metrics.md.
struct RunNumbers {
  double step_ms = 0;
  // From the begin of backward until all gradients are averaged: what PyTorch's own benchmarks of
  // its reducers report.
  double backward_ms = 0;
  double exposed_ms = 0;
  double skew_ms = 0;             // the largest of a step's collectives
  std::optional<double> overlap;  // nothing where nothing was communicated
  double tail_mb = 0;             // bytes of the last bucket, 10^6
  int64_t buckets = 0;            // collectives that average gradients
  int64_t steps = 0;              // that were measured
  int64_t outlier_steps = 0;      // among them, by their step_ms
};

// Places in Timeline::collectives of the step's sums of gradients, in their order: its buckets, or
// of reducers without any the sums themselves. What finds unused parameters is none.
std::vector<size_t> gradient_sums(const Timeline& timeline, const Step& step);

// Of a run judged with metrics and intervals. Nothing where no step after `warmup` is whole.
std::optional<RunNumbers> numbers_of(const RunResult& run, int64_t warmup);

}  // namespace lockstep
