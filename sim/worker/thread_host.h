#pragma once

#include <memory>
#include <vector>

#include "sim/launch/protocol.h"
#include "sim/plan/plan.h"
#include "sim/record/evidence.h"
#include "sim/record/recorder.h"
#include "sim/worker/control.h"
#include "sim/worker/golden_cache.h"

namespace lockstep {

// One run with ranks as threads of this process, over the local communicator. `recorders`: one per
// rank, cleared. Golden runs are made first, from `cache` where it has them. Checkpoints of the run
// go to `dir`. Returns the ranks' evidence, by rank. Blocks until all threads have ended.
std::vector<Evidence> run_in_threads(const RunPlan& plan,
                                     const std::vector<std::unique_ptr<Recorder>>& recorders,
                                     GoldenCache& cache, const std::string& dir);

// Serves runs that the launcher sends, one after another, until there are no more. Records lie in
// rank-R.records of the host's own directory, used again for each run. Returns the exit code.
int run_thread_host(const WorkerTask& task, Control& control);

}  // namespace lockstep
