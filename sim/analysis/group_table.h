#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/launch/executor.h"

namespace lockstep {

// The group of all ranks, as PyTorch names and describes it.
inline constexpr const char* kGroupOfAll = "0";
inline constexpr const char* kDescriptionOfAll = "default_pg";

// The groups of some of the ranks of a run, each once: its members tell of the same group by the
// same name and ranks.
struct GroupTable {
  // Their names differ, but where no rank is in two of a name: what PyTorch calls two groups that
  // share ranks has these behind it, "1 [0, 1]". Ascending by name where all names are numbers,
  // which is the order in which they were made; else by the first rank that tells of them.
  std::vector<RankGroup> groups;
  // By rank and its own number: the place in `groups`; none of what no agent writes.
  std::vector<std::vector<std::optional<size_t>>> places;

  // Of the one that an event of that rank means.
  std::optional<size_t> place_of(size_t rank, int64_t subject) const;
  bool has(size_t group, int64_t rank) const;
};

GroupTable groups_of(const RunOutcome& outcome);

}  // namespace lockstep
