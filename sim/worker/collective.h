#pragma once

#include "sim/launch/protocol.h"
#include "sim/worker/worker_process.h"

namespace lockstep {

// One rank of `lockstep collective`, whose spec lies in task.run_dir: connects all communicators of
// the spec, then measures size by size. Iterations of a size go in turn over the communicators
// (A B C, C B A), so that what disturbs the machine disturbs all alike; every rank begins one after
// a barrier in shared memory. Before each the inputs are put in place again and results of the one
// before are overwritten; after each the result is compared bit for bit. Before all, once, an
// element of rank 0 is damaged on purpose. Leaves its rank_file.h. Blocks until done; every wait
// has a deadline. Returns the exit code of the process.
int run_collective_process(const WorkerTask& task, Control& control);

}  // namespace lockstep
