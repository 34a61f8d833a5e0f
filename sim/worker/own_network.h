#pragma once

#include <memory>

#include "reducer/communicator.h"
#include "sim/fault/acts/own_link.h"
#include "sim/launch/protocol.h"
#include "sim/plan/plan.h"

namespace lockstep {

// The network of a run whose faults are left to the kernel (`means` veth or auto).
struct OwnNetwork {
  std::unique_ptr<RunSwitch> run_switch;  // of rank 0
  std::unique_ptr<OwnLink> link;          // null: all ranks stay where they are
};

// Rank 0 makes the switch, all ranks join it; where this machine cannot, `auto` does without. All
// ranks call it, on the thread that connects, before they connect. Blocks until rank 0 has done so;
// past the deadline CommError. Throws std::runtime_error where `veth` is asked for and cannot be.
OwnNetwork join_own_network(const RunPlan& plan, const WorkerTask& task, Store& store,
                            Deadline deadline);

}  // namespace lockstep
