#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// What the agent's tap (python/lockstep/agent/tap.py) left of one rank's collectives.

enum class TapKind {
  none,       // no recording of it
  hooks,      // PyTorch's own on process groups: all of them, those of the C++ reducers, too
  functions,  // torch.distributed's: what the script and Python parts of PyTorch call
};
const char* name_of(TapKind kind);

enum class SumKind { not_a_sum, all_reduce, reduce_scatter };
enum class SumType { other, float32, float64 };

struct TappedCall {
  int64_t call = 0;  // in its group, from 1; the same on all its ranks
  int64_t step = 0;  // from 1: after as many optimizer steps but one
  int64_t elements = 0;
  std::string name;
  SumKind sum = SumKind::not_a_sum;
  SumType type = SumType::other;
  int64_t input = -1, result = -1;  // where they lie in the file of contributions; -1: not kept
};

struct TappedGroup {
  std::vector<int64_t> ranks;  // in the order of the group
  std::vector<TappedCall> calls;
};

struct TappedRank {
  TapKind tap = TapKind::none;
  std::string torch;  // its version
  std::map<std::string, TappedGroup> groups;
  int64_t collectives = 0, bytes = 0;
  bool ended = false;         // else the recording broke off
  std::string contributions;  // a file
};

// Bounded and checked as a stranger's bytes are. Tap none where there is no such file.
Expected<TappedRank> read_tapped_rank(const std::string& folder, int64_t rank);

}  // namespace lockstep
