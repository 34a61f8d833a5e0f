#pragma once

#include "sim/launch/protocol.h"
#include "sim/plan/plan.h"
#include "sim/worker/control.h"

namespace lockstep {

// The tasks of a process that serves one run, whose plan lies in its run directory. Each blocks
// until done and returns the process's exit code.
int run_rank_process(const WorkerTask& task, const RunPlan& plan, Control& control);
int run_golden_process(const WorkerTask& task, const RunPlan& plan);
int run_rounding_process(const WorkerTask& task, const RunPlan& plan);

}  // namespace lockstep
