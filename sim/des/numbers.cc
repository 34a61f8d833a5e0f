#include "sim/des/numbers.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr double kMs = 1e-6;

double quantile(const std::vector<int64_t>& sorted, double q) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return static_cast<double>(sorted[static_cast<size_t>(std::ceil(q * last))]) * kMs;
}

}  // namespace

SimulatedNumbers numbers_of(const Job& job, const SimulatedRun& run) {
  SimulatedNumbers numbers;
  if (run.steps.empty()) return numbers;
  const size_t first = run.steps.size() > 1 ? 1 : 0;
  std::vector<int64_t> durations;
  double backward = 0, skew = 0;
  bool skew_known = run.engine != Engine::classes || !job.noise.per_bucket;
  for (size_t i = first; i < run.steps.size(); ++i) {
    const StepNumbers& step = run.steps[i];
    durations.push_back(step.duration_ns);
    numbers.exposed_ms += static_cast<double>(step.exposed_ns) * kMs;
    numbers.comm_ms += static_cast<double>(step.comm_ns) * kMs;
    backward += static_cast<double>(step.compute_ns + step.exposed_ns - step.average_ns -
                                    job.passes * job.forward_ns - job.load_ns) *
                kMs;
    skew += static_cast<double>(step.skew_ns) * kMs;
  }
  const auto count = static_cast<double>(durations.size());
  std::sort(durations.begin(), durations.end());
  for (const int64_t ns : durations) numbers.step_ms += static_cast<double>(ns) * kMs;
  numbers.step_ms /= count;
  numbers.p50_ms = quantile(durations, 0.5);
  numbers.p95_ms = quantile(durations, 0.95);
  numbers.p99_ms = quantile(durations, 0.99);
  numbers.longest_ms = static_cast<double>(durations.back()) * kMs;
  numbers.backward_ms = backward / count;
  numbers.exposed_ms /= count;
  numbers.comm_ms /= count;
  if (skew_known) numbers.skew_ms = skew / count;
  if (numbers.comm_ms > 0) numbers.overlap = 1 - numbers.exposed_ms / numbers.comm_ms;
  numbers.total_s = static_cast<double>(run.steps.back().end_ns) * 1e-9;
  numbers.steps = static_cast<int64_t>(durations.size());
  return numbers;
}

Chance wilson(int64_t hits, int64_t of) {
  if (of == 0) return {0, 0, 1};
  constexpr double z = 1.959963984540054;
  const auto n = static_cast<double>(of);
  const double p = static_cast<double>(hits) / n;
  const double middle = p + z * z / (2 * n);
  const double half = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  const double scale = 1 + z * z / n;
  return {p, std::max(0.0, (middle - half) / scale), std::min(1.0, (middle + half) / scale)};
}

}  // namespace lockstep
