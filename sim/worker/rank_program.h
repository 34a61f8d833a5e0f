#pragma once

#include <functional>
#include <memory>
#include <string>

#include "golden/stream.h"
#include "reducer/communicator.h"
#include "sim/fault/acts/own_link.h"
#include "sim/plan/plan.h"
#include "sim/record/evidence.h"
#include "sim/record/recorder.h"
#include "sim/worker/replica_board.h"

namespace lockstep {

// What surrounds one rank, be it a process or a thread.
struct RankContext {
  const RunPlan& plan;
  int64_t rank;
  int64_t local_rank;  // among those of its host
  Recorder& recorder;
  // Joins the group of all ranks; `deadline` for the rendezvous. Throws CommError.
  std::function<std::unique_ptr<Communicator>(const CommOptions&, Deadline)> connect;
  // The stream of a golden run ("replay"), or, for "rounding", the one that rank 0 writes.
  std::function<std::shared_ptr<StateStream>(const std::string&, Deadline)> stream;
  std::function<std::shared_ptr<ReplicaBoard>(int64_t state_bytes, Deadline)> board;
  // The rank's own link once it is connected, or null: what faults may limit. May be empty.
  std::function<OwnLink*()> own_link = {};
  std::string evidence_path;   // written at the first mismatch and at the end; empty: not written
  std::string checkpoint_dir;  // where a run's own checkpoints lie, the same for all ranks
  std::string dump_prefix;     // tensors of a mismatch go to files of this name; empty: nowhere
};

struct RankEnd {
  int exit_code = 0;  // kExitDone, kExitCommError, kExitException
  Evidence evidence;
};

// Trains the scenario as rank `rank`, in the scenario's dtype and then, where the plan says so,
// once more in float64; compares its state with the golden runs after every step and records all
// that the judge needs. Blocks until done; every wait has a deadline of the plan. Never throws.
RankEnd run_rank(const RankContext& context);

}  // namespace lockstep
