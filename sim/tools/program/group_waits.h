#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/record/rank_groups.h"
#include "sim/record/recorder.h"
#include "sim/tools/program/run_watch.h"

namespace lockstep {

// Waiting within groups of some of the ranks, whose collectives the agent counts.

// A call of a group that some of its ranks stand in and others never entered.
struct GroupWait {
  std::vector<int64_t> members, waiting, missing;  // ascending
  int64_t call = 0;
  int64_t since_ns = 0;  // the first of them entered it
};

// The one that somebody waits in for longest; nothing where nobody does. Groups are told apart by
// PyTorch's name and their ranks.
std::optional<GroupWait> longest_group_wait(const ProgramRun& run);
// Has this rank entered a call of such a group that has not ended on it?
bool waits_in_group(const ProgramRun& run, int64_t rank);

}  // namespace lockstep
