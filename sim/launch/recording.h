#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/launch/executor.h"

namespace lockstep {

// What scripts/lockstep_record.py leaves of a run in Python: recording.json, and of each rank
// rank-R.records (as ours) and rank-R.hashes.

bool is_recording(const std::string& folder);

// As if it were a run of ours, as far as times are concerned: a plan with no choice made but name
// and world size, the records, no ends of processes. Bad input: no recording of this version, a
// rank without records.
Expected<RunOutcome> read_recorded_run(const std::string& folder);

// Hashes of one rank's tensors after a step, in the order in which the recorder wrote them.
struct HashedStep {
  using Tensors = std::vector<std::pair<std::string, std::string>>;  // name -> hash
  static constexpr std::array<const char*, 4> kKinds = {"gradient", "buffer", "parameter",
                                                        "optimizer_state"};
  int64_t step = 0;
  std::array<Tensors, 4> tensors;  // by kind
};
struct RecordedHashes {
  std::string folder;
  int64_t world_size = 1;
  std::vector<std::vector<HashedStep>> ranks;  // by rank, ascending steps
};
Expected<RecordedHashes> read_recorded_hashes(const std::string& folder);

// The first tensor in which rank 0 of two recordings differs, in the order of steps that both
// hashed, then of kinds, then of a.
struct RecordedDivergence {
  int64_t steps = 0;         // that both hashed
  int64_t tensors = 0;       // compared in all of them
  int64_t differing = 0;     // ... of the first step that differs
  int64_t in_step = 0;       // tensors compared in that step
  int64_t step = 0;          // 0: none differs
  std::string kind, tensor;  // of the first
  std::string a, b;          // its hashes; empty: that side has no such tensor
};
RecordedDivergence first_divergence(const RecordedHashes& a, const RecordedHashes& b);

// The first in which another rank differs from rank 0 within one recording, buffers aside (ranks
// may keep buffers of their own). `rank`: which.
struct RankDivergence {
  int64_t rank = 0, step = 0;  // step 0: none
  std::string kind, tensor;
};
RankDivergence divergence_of_ranks(const RecordedHashes& recording);

}  // namespace lockstep
