#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Groups of some of the ranks of a program, whose collectives the agent records beside those of all
// ranks (python/lockstep/agent/run).

// As one of its members knows it.
struct RankGroup {
  std::string name;  // PyTorch's
  std::vector<int64_t> ranks;
  std::string description = {};  // the program's, or a device mesh's; empty: it has none
  int64_t timeout_ms = -1;       // -1: not known
};

// Events of programs alone. subject: the group's place in what its rank knows; sequence: its calls
// from 1; value of an arrival as of one of all ranks: pack_collective(), or 0 of older agents.
inline constexpr uint16_t kGroupArrival = 31, kGroupEnd = 32;

}  // namespace lockstep
