#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/calibrate/fit.h"
#include "sim/cli/simulate.h"
#include "sim/des/machine_model.h"
#include "sim/judge/judge.h"
#include "sim/report/simulate_document.h"
#include "sim/report/sweep_document.h"

namespace lockstep {

// The machine that a command line asks for.
Expected<MachineModel> machine_of(const SimulateVerb& verb);
// "Gloo on loopback (default): 60.0 us, 1,500 MB/s"
std::string words_of(const SimulateVerb& verb, const MachineModel& machine);

// Every plan as it is, judged by what its scenario expects of time where it is small enough to be
// recorded.
Expected<std::vector<SimulatedLine>> simulate_plans(const SimulateVerb& verb,
                                                    const MachineModel& machine,
                                                    const std::vector<RunPlan>& plans);

// What of the options about failing hosts cannot be; nothing where none is given.
InputErrors long_run_errors(const SimulateVerb& verb);
// How long the line's training takes on hosts that fail, where the command line asks for it. Bad
// input: a run that would never end.
InputErrors add_long_run(const SimulateVerb& verb, const MachineModel& machine, uint64_t seed,
                         SimulatedLine* line);

// One plan over the axes of --predict, and which cap is best at each world size. Caps that give the
// same buckets are one line.
struct PredictionJobs {
  std::vector<SimulatedLine> lines;
  std::vector<CapAdvice> advice;
};
Expected<PredictionJobs> predict(const SimulateVerb& verb, const MachineModel& machine,
                                 const RunPlan& plan);

// A plan in virtual time, judged by its records as a real run of it is, with metrics and intervals:
// what is measured there can be set beside it. The reason where the plan cannot be simulated on
// this machine, is too large to be recorded, or does not come to its end.
Expected<RunResult> judged_in_virtual_time(const RunPlan& plan, const MachineModel& machine);

// All that is wrong, in one line.
std::string reason_of(const InputErrors& errors);

}  // namespace lockstep
