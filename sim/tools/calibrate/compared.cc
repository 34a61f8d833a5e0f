#include "sim/tools/calibrate/compared.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "sim/analysis/timeline.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/judge/judge.h"
#include "sim/plan/plans.h"
#include "sim/sweep/measure.h"
#include "sim/sweep/statistics.h"

namespace lockstep {
namespace {

constexpr int64_t kWarmup = 1;  // the first step allocates

// Of runs that differ in their cap alone the same.
std::string but_for_cap(const RunPlan& plan) {
  AxisValues others;
  for (const auto& axis : plan.set)
    if (axis.first != "/reducer/bucket_cap_mb") others.push_back(axis);
  return plan.scenario.name + " " + label_of(others);
}

Expected<Fit> fit_without(const std::vector<KeptRun>& runs, size_t one, int64_t cores) {
  std::vector<RunSamples> samples;
  for (size_t i = 0; i < runs.size(); ++i)
    if (i != one) samples.push_back(runs[i].samples);
  return fit_machine(samples, cores);
}

std::optional<double> simulated_ms(const RunPlan& plan, const MachineModel& machine) {
  const auto result = judged_in_virtual_time(plan, machine);
  const auto numbers = result ? numbers_of(result.value(), kWarmup) : std::nullopt;
  if (!numbers || numbers->step_ms <= 0) return std::nullopt;
  return numbers->step_ms;
}

}  // namespace

KeptRun kept_run_of(const RunOutcome& outcome, const std::string& folder) {
  KeptRun run{outcome.plan, samples_of(outcome.plan, timeline_of(outcome), folder)};
  const auto times = step_times_ms(judge_run(outcome, {.metrics = true}), kWarmup);
  if (times.empty()) return run;
  run.step_ms = bootstrap_median(times, kConfidence, 0).value;
  return run;
}

std::vector<ComparedRun> compared_runs(const std::vector<KeptRun>& runs, int64_t cores) {
  std::vector<ComparedRun> compared;
  if (runs.size() < 2) return compared;  // without it there is nothing to fit a machine to
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].step_ms <= 0) continue;
    const auto fit = fit_without(runs, i, cores);
    if (!fit) continue;
    const auto ms = simulated_ms(runs[i].plan, fit.value().machine);
    if (ms) compared.push_back({but_for_cap(runs[i].plan), *ms, runs[i].step_ms});
  }
  return compared;
}

}  // namespace lockstep
