#pragma once

#include <vector>

#include "sim/cli/simulate.h"
#include "sim/des/machine_model.h"
#include "sim/report/simulate_document.h"

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

// One plan over the axes of --predict, and the cap that is best at its first world size.
struct PredictionJobs {
  std::vector<SimulatedLine> lines;
  std::optional<double> best_cap_mb;
  std::string recommendation;
};
Expected<PredictionJobs> predict(const SimulateVerb& verb, const MachineModel& machine,
                                 const RunPlan& plan);

}  // namespace lockstep
