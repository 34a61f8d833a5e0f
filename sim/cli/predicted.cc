#include "sim/cli/predicted.h"

#include <algorithm>

#include "sim/des/job_of_plan.h"
#include "sim/des/records.h"
#include "sim/des/simulate.h"
#include "sim/plan/layout.h"
#include "sim/report/machine.h"

namespace lockstep {
namespace {

bool has_buckets(const Cell& cell) {
  return !cell.check && cell.world_size > 1 && has_cap(cell.plan) && cell.plan.layout_known;
}

}  // namespace

std::optional<RunResult> judged_in_virtual_time(const RunPlan& plan, const MachineModel& machine) {
  const auto planned = job_of_plan(plan, machine);
  if (!planned || recorded_events(planned.value()) > kMostRecorded / 10) return std::nullopt;
  VirtualRecords records(plan, planned.value());
  const auto run =
      simulate(planned.value().job, {}, [&](const StepTrace& trace) { records.add(trace); });
  if (!run || run.value().failure) return std::nullopt;
  return judge_run(records.take(run.value()), {.metrics = true, .intervals = true});
}

std::optional<size_t> cell_to_calibrate_on(const std::vector<Cell>& cells) {
  const auto usual = std::find_if(cells.begin(), cells.end(), [](const Cell& cell) {
    return has_buckets(cell) && cell.cap_mb == kDefaultCapMib;
  });
  const auto found =
      usual != cells.end() ? usual : std::find_if(cells.begin(), cells.end(), has_buckets);
  if (found == cells.end()) return std::nullopt;
  return static_cast<size_t>(found - cells.begin());
}

std::optional<SweepDocument::Simulated> simulated_lines(const std::string& calibrated_on,
                                                        const std::vector<RunSamples>& samples,
                                                        const std::vector<CellResult>& lines,
                                                        int64_t warmup) {
  const auto fit = fit_machine(samples, this_machine().cores);
  if (!fit) return std::nullopt;
  SweepDocument::Simulated simulated{calibrated_on, {}};
  for (const CellResult& line : lines) {
    const auto result = judged_in_virtual_time(line.cell.plan, fit.value().machine);
    const auto numbers = result ? numbers_of(*result, warmup) : std::nullopt;
    simulated.step_ms.push_back(numbers ? std::optional(numbers->step_ms) : std::nullopt);
  }
  return simulated;
}

}  // namespace lockstep
