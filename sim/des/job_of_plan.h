#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/job.h"
#include "sim/des/machine_model.h"
#include "sim/plan/plan.h"

namespace lockstep {

// What of a plan is simulated otherwise than it says.
struct SimulatedAs {
  // So many, each with the plan's samples, or virtual shards, a rank (weak scaling).
  std::optional<int64_t> ranks;
  std::optional<int64_t> steps;
  std::optional<double> cap_mb;  // MiB, as bucket_cap_mb
  // Parameters are averaged so, instead of by the scenario's model_averaging; none: as it says.
  std::vector<Averaging> averaging;
  // The plan's scenario was taken before, on another machine: its keys are not gone through again,
  // and there are no notes.
  bool taken_before = false;
};

// The job of a plan on a machine: layer times (of emulated compute; of real compute the machine's
// forward_ms and backward_ms by the layers' multiply-accumulates), buckets by the reducer's own
// assignment, faults as delays, time-outs. Bad input, all of it at once: what sim/des/modelled.h
// does not let in, faults of ranks, steps and buckets that are not there, numbers out of range.
//
// Micro-batches and virtual shards are passes of a step, comm hook post_local_sgd leaves steps
// without buckets, hooks of half precision send half of the bytes. What is left out is told in
// `notes`.
struct PlannedJob {
  Job job;
  std::vector<std::string> notes;
  BucketLayout first_step, settled;  // by parameter, as job's buckets
  int64_t parameter_bytes = 0;       // of those in buckets, before any comm hook
};
Expected<PlannedJob> job_of_plan(const RunPlan& plan, const MachineModel& machine,
                                 const SimulatedAs& as = {});

// Virtual shards of so many ranks that each have as many as one of the scenario: V grows with them.
int64_t shards_on(const Scenario& scenario, int64_t ranks);

// Of its all-reduces: the machine's, where that says one, else the communicator's.
Algorithm algorithm_of(const Scenario& scenario, const MachineModel& machine);

// Of its faults alone. `scenario` must outlive it; world_size is that of the job.
Schedule schedule_of(const Scenario& scenario, const std::vector<BucketWork>& first_step,
                     const std::vector<BucketWork>& settled,
                     const std::vector<std::pair<std::string, int64_t>>& layer_ready_ns);

}  // namespace lockstep
