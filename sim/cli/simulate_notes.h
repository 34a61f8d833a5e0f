#pragma once

#include "sim/cli/simulate.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/machine_model.h"
#include "sim/plan/plan.h"
#include "sim/report/simulate_document.h"

namespace lockstep {

// What a reader of a simulated line should know beside its numbers: each adds to line->notes.

// The time-outs of a launcher end no simulated run; a real one they would.
void note_timeouts(const RunPlan& plan, const SimulatedAs& as, SimulatedLine* line);
// What a machine file says that does not count for this job, or is taken from elsewhere.
void note_machine(const MachineModel& machine, const Job& job, SimulatedLine* line);
// A seed of which no time depends.
void note_seed(const SimulateVerb& verb, const RunPlan& plan, const Job& job, SimulatedLine* line);
// The rounds of a ring grow with the ranks, a tree's with their logarithm. Where nobody chose the
// ring for this machine and a bucket's rounds alone take longer than the step's compute.
void note_rounds(const SimulateVerb& verb, const MachineModel& machine, const Job& job,
                 SimulatedLine* line);

}  // namespace lockstep
