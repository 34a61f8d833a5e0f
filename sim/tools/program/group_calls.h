#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/judge/other_calls.h"
#include "sim/tools/program/run_watch.h"

namespace lockstep {

// A collective of a group of some of the ranks that its members called differently.
struct GroupMismatch {
  std::vector<int64_t> members;
  std::vector<CallSide> sides;
};

// The first of some group; nothing where all called the same.
std::optional<GroupMismatch> first_group_mismatch(const ProgramRun& run, const CallsDiffer& differ);

}  // namespace lockstep
