#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/launch/executor.h"

namespace lockstep {

// What scripts/lockstep_record.py leaves of a run in Python: recording.json, and of each rank
// rank-R.records (as ours) and rank-R.hashes; where it was asked to keep tensors, of rank 0
// rank-0.step-N.pt and rank-0.end.pt.

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
  static constexpr size_t kBuffers = 1;
  int64_t step = 0;
  std::array<Tensors, 4> tensors;  // by kind
  // What the records say of it: a hash chained over all lines so far. Nothing: it was dropped.
  std::array<std::optional<uint64_t>, 4> chains;
};

// How far one rank came.
struct RecordedRank {
  std::vector<HashedStep> hashed;  // ascending steps
  std::optional<HashedStep> end;   // the state when the run ended; has no gradients
  int64_t last_step = 0;           // the last one that its records saw the end of
  bool finished = false;           // it said that the run had come to its end
};

struct RecordedHashes {
  std::string folder;
  int64_t world_size = 1;
  int64_t hash_every = 1;  // it was to hash each step that this divides
  // Which hash the recorder took; those of two cannot be compared. Of 1 there is no state at the
  // end.
  int64_t hash_version = 1;
  bool tensors = false;  // the hashed tensors of rank 0 were kept as well
  std::vector<RecordedRank> ranks;
};
// A line of hashes without an end is one that the process did not live to write: it is left out.
// Bad input: whatever the recorder cannot have written.
Expected<RecordedHashes> read_recorded_hashes(const std::string& folder);

// The file of the tensors that were hashed after a step, or (nothing) at the end of the run.
std::string recorded_tensors_path(const std::string& folder, std::optional<int64_t> step);

}  // namespace lockstep
