#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/des/job.h"
#include "sim/des/result.h"

namespace lockstep {

// What is said of a simulated run: over its steps without the first, which has other buckets and
// warms up, as everywhere (docs/metrics.md). Of a run of one step, that one.
struct SimulatedNumbers {
  double step_ms = 0;  // mean
  double p50_ms = 0, p95_ms = 0, p99_ms = 0, longest_ms = 0;
  double backward_ms = 0;              // mean: until all gradients are averaged
  double exposed_ms = 0, comm_ms = 0;  // means
  std::optional<double> skew_ms;       // mean of the steps' largest; none: not known
  std::optional<double> overlap;       // 1 - exposed / comm; none: no comm
  double total_s = 0;                  // of the whole run
  int64_t steps = 0;                   // that are counted
};
SimulatedNumbers numbers_of(const Job& job, const SimulatedRun& run);

// Chance that a step's collectives take longer than the time-out allows, from a run without one:
// the part of steps with one that does, from the first arrival on, with Wilson's 95 % interval.
struct Chance {
  double value = 0, low = 0, high = 0;
};
Chance wilson(int64_t hits, int64_t of);

}  // namespace lockstep
