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
  int64_t since_ns = 0;          // the first of them entered it
  std::vector<int64_t> victims;  // of root_of_group_wait(): all whose waiting comes from it
  bool late = false;             // those that are missing came in the end, when it was too late
  bool circular = false;         // each of those waits in a group as well: they wait for each other
};

// The one that somebody waits in for longest; nothing where nobody does. Groups are told apart by
// PyTorch's name and their ranks.
std::optional<GroupWait> longest_group_wait(const ProgramRun& run);
inline constexpr int64_t kWholeRun = INT64_MAX;

// What a rank's waiting comes from, as of a moment: of what it waits in, whoever is missing may
// wait in a group itself, and so on to the first wait in which one is missing that waits in none;
// those alone are its `missing`. Where there is no such, as ranks wait for each other, it is what
// the rank itself waits in for longest. Nothing where it waits in no group.
std::optional<GroupWait> root_of_group_wait(const ProgramRun& run, int64_t rank, int64_t as_of_ns);
// Has this rank entered a call of such a group that has not ended on it?
bool waits_in_group(const ProgramRun& run, int64_t rank);

}  // namespace lockstep
