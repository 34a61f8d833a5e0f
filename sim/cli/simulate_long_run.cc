#include <fmt/format.h>

#include <cmath>

#include "sim/cli/conclude.h"
#include "sim/cli/simulate_jobs.h"

namespace lockstep {
namespace {

int64_t ns_of(double s) { return std::llround(s * 1e9); }

}  // namespace

InputErrors long_run_errors(const SimulateVerb& verb) {
  InputErrors errors;
  if (!verb.mtbf_hours) {
    for (const auto& [name, value] : {std::pair("--work-hours", &verb.work_hours),
                                      {"--checkpoint-s", &verb.checkpoint_s},
                                      {"--checkpoint-every-s", &verb.checkpoint_every_s},
                                      {"--restart-s", &verb.restart_s}})
      if (*value) errors.push_back(option_error(fmt::format("{} without --mtbf-hours", name)));
    return errors;
  }
  for (const auto& [name, value] :
       {std::pair("--checkpoint-s", &verb.checkpoint_s), {"--restart-s", &verb.restart_s}})
    if (!*value) errors.push_back(option_error(fmt::format("--mtbf-hours without {}", name)));
  return errors;
}

InputErrors add_long_run(const SimulateVerb& verb, const MachineModel& machine, uint64_t seed,
                         SimulatedLine* line) {
  if (!verb.mtbf_hours || line->numbers.steps == 0) return {};
  const int64_t inside = machine.cost.ranks_per_host;
  SimulatedLine::OverDays days;
  LongRun& run = days.run;
  run.work_ns = ns_of(verb.work_hours ? *verb.work_hours * 3600 : line->numbers.total_s);
  run.hosts = (line->ranks + inside - 1) / inside;
  run.mtbf_ns = ns_of(*verb.mtbf_hours * 3600);
  run.checkpoint_ns = ns_of(*verb.checkpoint_s);
  run.restart_ns = ns_of(*verb.restart_s);
  run.seed = seed;
  days.best_interval = !verb.checkpoint_every_s;
  run.interval_ns = days.best_interval ? best_interval_ns(run) : ns_of(*verb.checkpoint_every_s);
  if (InputErrors problems = problems_of(run); !problems.empty()) return problems;
  days.numbers = simulate_long_run(run, enough_runs(run), verb.threads);
  days.expected_ns = expected_ns(run);
  line->over_days = days;
  return {};
}

}  // namespace lockstep
