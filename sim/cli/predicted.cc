#include "sim/cli/predicted.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "scenarios/base/text.h"
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

Expected<RunResult> judged_in_virtual_time(const RunPlan& plan, const MachineModel& machine) {
  const auto planned = job_of_plan(plan, machine);
  if (!planned) return planned.errors();
  const int64_t events = recorded_events(planned.value()), most = kMostRecorded / 10;
  if (events > most)
    return option_error(fmt::format("its {} events are too many to be written down", events),
                        fmt::format("at most {}", most));
  VirtualRecords records(plan, planned.value());
  const auto run =
      simulate(planned.value().job, {}, [&](const StepTrace& trace) { records.add(trace); });
  if (!run) return run.errors();
  if (run.value().failure)
    return option_error(fmt::format("in virtual time it is ended in step {} by {}",
                                    run.value().failure->step,
                                    to_word(run.value().failure->cause)));
  return judge_run(records.take(run.value()), {.metrics = true, .intervals = true});
}

std::string reason_of(const InputErrors& errors) {
  std::string text;
  for (const InputError& error : errors)
    text += (text.empty() ? "" : "; ") + printable(error.message);
  return text;
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

Expected<SweepDocument::Simulated> simulated_lines(const std::string& calibrated_on,
                                                   const std::vector<RunSamples>& samples,
                                                   const std::vector<CellResult>& lines,
                                                   int64_t warmup) {
  const auto fit = fit_machine(samples, this_machine().cores);
  if (!fit) return fit.errors();
  SweepDocument::Simulated simulated{calibrated_on, {}, {}};
  for (const CellResult& line : lines) {
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
