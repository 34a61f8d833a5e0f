#pragma once

#include <memory>
#include <string>

#include "golden/stream.h"
#include "reducer/communicator.h"
#include "scenarios/base/clock.h"
#include "sim/fault/acts/own_link.h"
#include "sim/launch/protocol.h"
#include "sim/plan/plan.h"
#include "sim/record/recorder.h"
#include "sim/worker/worker_process.h"

namespace lockstep {

// The rendezvous store that the launcher serves over the control socket, as reducer/ wants it.
// `control` must outlive it.
std::shared_ptr<Store> make_control_store(Control& control);

// Every process says which rank it is and how many it expects, before any connection is made: what
// does not fit is named at once instead of by a time-out. `process` (from 0) is what the launcher
// started it as, `processes` how many there are. Blocks until all have signed in or the deadline
// has passed. Throws CommError: rejected for the process that is wrong (it claims a rank that is
// another's, or expects another world size than most), peer_lost for all others then, timeout where
// one does not come, naming the first that is missing.
void sign_in(Store& store, const CommOptions& options, int64_t process, int64_t processes,
             Deadline deadline);

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

// Joins ranks that are processes: `kind` is a scenario's communicator/kind, but for local;
// `ranks_per_host` counts for hierarchical alone. Blocks until connected or the deadline has passed
// (CommError).
std::unique_ptr<Communicator> make_process_communicator(const std::string& kind,
                                                        int64_t ranks_per_host,
                                                        const CommOptions& options,
                                                        const std::shared_ptr<Store>& store,
                                                        Deadline deadline);

// Judges every state that rank 0 streams by the plan's statistics (golden/statistics.h) and records
// them, with their controls. Blocks until the last state, the stream's end, or a wait's deadline.
void watch_states(const RunPlan& plan, StateStream& stream, Deadline deadline, Recorder& recorder);

// The tasks of a process that serves one run, whose plan lies in its run directory. Each blocks
// until done and returns the process's exit code.
int run_rank_process(const WorkerTask& task, const RunPlan& plan, Control& control);
int run_golden_process(const WorkerTask& task, const RunPlan& plan);
int run_rounding_process(const WorkerTask& task, const RunPlan& plan);

}  // namespace lockstep
