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

// How a run that lockstep_record.py recorded came to its end, from the records of its ranks alone:
// nobody saw their processes.

struct RecordedEnd {
  enum class Kind : uint8_t {
    whole,       // all ranks came to their end, after the same number of steps
    unfinished,  // a rank has no end, and nothing shows that it failed: killed, or still running
    failed       // a rank ended with an error, or others waited in vain for one
  };
  enum class How : uint8_t { finished, error, cut };
  struct Rank {
    How how = How::cut;
    int64_t last_step = 0;  // that it ended
    int64_t step = 0;       // of its last event
    Phase phase{};
    int64_t last_ns = 0;
    std::optional<int64_t> error_ns;
  };
  // What the others waited in.
  struct Meeting {
    int64_t step = 0;
    Phase phase{};
    std::optional<int64_t> bucket;  // nothing: no bucket's, as the broadcast of buffers in forward
    std::vector<int64_t> waited;    // who had come
    std::vector<int64_t> absent;    // who never came
    std::vector<int64_t> late;  // who came when others had given up; none, where some never came
    int64_t waited_ns = 0;      // the longest, until somebody gave up; 0: not known
    int64_t late_ns = 0;        // from the first who came to the last who was late
  };
  Kind kind = Kind::whole;
  std::vector<Rank> ranks;
  int64_t last_whole_step = 0;          // that all ranks ended
  std::optional<Meeting> meeting;       // nothing: nobody is known to have waited in vain
  std::optional<int64_t> failed_first;  // whose error was the first, where there is no meeting
};

RecordedEnd end_of_recording(const RunOutcome& outcome);

// The same run without what came after a step.
RunOutcome until_step(RunOutcome outcome, int64_t step);

}  // namespace lockstep
