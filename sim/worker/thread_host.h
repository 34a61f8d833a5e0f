#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "golden/golden_run.h"
#include "sim/launch/protocol.h"
#include "sim/plan/plan.h"
#include "sim/record/evidence.h"
#include "sim/record/recorder.h"
#include "sim/worker/worker_process.h"

namespace lockstep {

// Golden runs of a host of many short runs: a golden run does not know which reducer or
// communicator it judges, so runs that differ only in these share it. Keeps the newest kEntriesMax.
// One thread.
class GoldenCache {
 public:
  static constexpr size_t kEntriesMax = 64;

  // A stream that holds all items of the golden run already, for ranks_of(plan.scenario)
  // consumers: made now, or copied from an earlier one with the same settings.
  std::shared_ptr<StateStream> stream(const RunPlan& plan, GoldenKind kind);

 private:
  struct Items {
    int64_t slot_bytes = 0;
    std::vector<std::byte> bytes;
  };
  Items make(const RunPlan& plan, GoldenKind kind) const;

  std::map<std::string, Items> entries_;
  std::vector<std::string> order_;  // oldest first
};

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
