#pragma once

#include <string>
#include <vector>

#include "sim/cli/simulate.h"
#include "sim/des/machine_model.h"

namespace lockstep {

// Each option of `lockstep simulate`, and where it has a say: one that is given where it has none
// is refused, not ignored. One table, of which a test knows that no option is missing.

// What is simulated with the options.
struct SimulatedWith {
  const SimulateVerb& verb;
  const MachineModel& machine;
  const std::vector<RunPlan>& plans;
  std::vector<int64_t> worlds;  // numbers of ranks, of all runs
};

struct OptionUse {
  const char* name;  // "--channels"
  bool (*given)(const SimulateVerb& verb);
  // Why it changes nothing in any of the runs; empty: it counts.
  std::string (*why_not)(const SimulatedWith& with);
};
const std::vector<OptionUse>& option_uses();

InputErrors unused_options(const SimulateVerb& verb, const MachineModel& machine,
                           const std::vector<RunPlan>& plans);

}  // namespace lockstep
