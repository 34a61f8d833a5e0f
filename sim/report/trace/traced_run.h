#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/recorded_calls.h"
#include "sim/analysis/timeline.h"
#include "sim/launch/executor.h"

namespace lockstep {

// What traces are made of, read once for all ranks.
struct TracedRun {
  const RunOutcome& outcome;
  Timeline timeline;
  std::vector<std::vector<RecordedCall>> calls;  // by rank; their groups are the timeline's

  size_t ranks() const { return calls.size(); }
  // Did it leave records? Of one that left none nothing is known, not even that it did nothing.
  bool is_known(size_t rank) const { return !outcome.ranks[rank].events.empty(); }
};

// PyTorch's name of the group; that of all ranks is kGroupOfAll.
const std::string& group_name(const Timeline& timeline, const std::optional<size_t>& group);
// "undefined", as PyTorch has it, where nobody described it.
std::string group_description(const Timeline& timeline, const std::optional<size_t>& group);
// "[0, 2]", as PyTorch's dumps and traces list them.
std::string ranks_text(const Timeline& timeline, const std::optional<size_t>& group);

// Reads it; `outcome` must outlive what is returned.
TracedRun read_for_traces(const RunOutcome& outcome);

// "gloo" over TCP, whoever makes the groups; "nccl", "shm", "local", "hierarchical"; "c10d" (as in
// PyTorch's dumps) of a recording, which does not say.
std::string backend_of(const Scenario& scenario);

}  // namespace lockstep
