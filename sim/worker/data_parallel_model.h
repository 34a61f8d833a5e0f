#pragma once

#include <memory>
#include <string>

#include "scenarios/workloads/workload.h"

namespace lockstep {

// The training's model as reducer data_parallel runs it: its forward is that of one replica for
// each shard (reducer/data_parallel.h). Parameters, buffers and optimizer stay the training's own.
// Nothing where the scenario has another reducer.
void run_on_replicas(const Scenario& scenario, const std::string& dtype, Training* training);

}  // namespace lockstep
