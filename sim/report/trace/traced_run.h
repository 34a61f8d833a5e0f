#pragma once

#include <cstdint>
#include <vector>

#include "sim/analysis/recorded_calls.h"
#include "sim/analysis/timeline.h"
#include "sim/launch/executor.h"

namespace lockstep {

// What traces are made of, read once for all ranks.
struct TracedRun {
  const RunOutcome& outcome;
  Timeline timeline;
  std::vector<std::vector<RecordedCall>> calls;  // by rank

  size_t ranks() const { return calls.size(); }
  // Did it leave records? Of one that left none nothing is known, not even that it did nothing.
  bool is_known(size_t rank) const { return !outcome.ranks[rank].events.empty(); }
};

// Reads it; `outcome` must outlive what is returned.
TracedRun read_for_traces(const RunOutcome& outcome);

// "gloo" over TCP, whoever makes the groups; "nccl", "shm", "local", "hierarchical"; "c10d" (as in
// PyTorch's dumps) of a recording, which does not say.
std::string backend_of(const Scenario& scenario);

}  // namespace lockstep
