#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/collectives.h"
#include "sim/tools/program/judge.h"

namespace lockstep {

// Lane replay of a program: did every sum over Gloo give, bit for bit, what its contributions give
// in the order in which Gloo adds (docs/numerics.md)? Division is not part of it: the reducer of
// DistributedDataParallel divides its contributions before, FSDP2 the result after.

struct ProgramReplay {
  TapKind tap = TapKind::none;
  std::string torch;
  int64_t collectives = 0;                // of rank 0
  int64_t kept_bytes = 0;                 // of all ranks
  std::optional<ProgramFinding> finding;  // none: this tap saw nothing that the lane could judge
  bool control_failed = false;            // with a bit of one contribution flipped
};

// Of the recordings of one run in `folder`.
ProgramReplay replay_program(const std::string& folder, int64_t world);

}  // namespace lockstep
