#include "sim/cli/simulated_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "scenarios/base/text.h"
#include "scenarios/layer_times.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/plan/bucket_layout.h"
#include "sim/report/machine.h"
#include "sim/sweep/measure.h"

namespace lockstep {
namespace {

bool has_buckets(const Cell& cell) {
  return !cell.check && cell.world_size > 1 && has_cap(cell.plan) && cell.plan.layout_known;
}

// Where compute is real, what a pass takes was measured of so many samples.
std::string why_not_on(const RunPlan& fitted, const RunPlan& plan) {
  const Scenario& scenario = plan.scenario;
  const bool alike = planned_samples(fitted.scenario) == planned_samples(scenario);
  const bool shards = has_virtual_shards(scenario) || has_virtual_shards(fitted.scenario);
  if (!shards || scenario.compute.kind != "real" || alike) return "";
  return fmt::format(
      "compute is real, and what a pass of {} {} takes does not follow from passes of {}",
      planned_samples(scenario), plural(std::llround(planned_samples(scenario)), "sample"),
      planned_samples(fitted.scenario));
}

}  // namespace

std::optional<size_t> cell_to_calibrate_on(const std::vector<Cell>& cells) {
  const auto usual = std::find_if(cells.begin(), cells.end(), [](const Cell& cell) {
    return has_buckets(cell) && cell.cap_mb == kDefaultCapMib;
  });
  const auto found =
      usual != cells.end() ? usual : std::find_if(cells.begin(), cells.end(), has_buckets);
  if (found == cells.end()) return std::nullopt;
  return static_cast<size_t>(found - cells.begin());
}

Expected<SweepDocument::Simulated> simulated_lines(const Cell& calibrated_on,
                                                   const std::vector<RunSamples>& samples,
                                                   const std::vector<CellResult>& lines,
                                                   int64_t warmup) {
  const auto fit = fit_machine(samples, this_machine().cores);
  if (!fit) return fit.errors();
  SweepDocument::Simulated simulated{label_of(calibrated_on), {}, {}};
  for (const CellResult& line : lines) {
    if (std::string why = why_not_on(calibrated_on.plan, line.cell.plan); !why.empty()) {
      simulated.step_ms.push_back(std::nullopt);
      simulated.why_not.push_back(std::move(why));
      continue;
    }
    const auto result = judged_in_virtual_time(line.cell.plan, fit.value().machine);
    const auto numbers = result ? numbers_of(result.value(), warmup) : std::nullopt;
    simulated.step_ms.push_back(numbers ? std::optional(numbers->step_ms) : std::nullopt);
    simulated.why_not.push_back(!result   ? reason_of(result.errors())
                                : numbers ? ""
                                          : "in virtual time it has no step to measure");
  }
  return simulated;
}

}  // namespace lockstep
