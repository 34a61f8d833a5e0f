#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/recording.h"

namespace lockstep {

// Two runs that lockstep_record.py recorded, by their hashes. A difference that was found is one,
// however short a recording is. That nothing differs is said only of two whole recordings: all
// ranks of both came to their end, after the same number of steps, and the last state of both was
// hashed.

enum class RecordedSide : uint8_t { a, b };

// Why it is not known whether the runs agree.
struct RecordedGap {
  enum class Kind : uint8_t {
    no_end,         // the rank's recording stops after `step`
    other_length,   // A has `step` steps, B `other`
    ranks_apart,    // within a side: rank 0 has `other` steps, the rank `step`
    not_hashed,     // the rank should have hashed `step`, and there is no line of it
    end_unhashed,   // the rank came to its end after `step`, and there is no line of that state
    last_unhashed,  // nothing later than `step` was hashed in both, and there are `other` steps
    chains_differ,  // hashes agree up to `step`, and what the records hold of them does not
    no_tensors      // the file of rank 0's tensors after `step` (0: at the end) is missing
  };
  Kind kind = Kind::no_end;
  std::optional<RecordedSide> side;  // nothing: of both together
  int64_t rank = 0, step = 0, other = 0;
};

// The first tensor in which the recordings differ, in the order of steps that both hashed, the end
// last, then of ranks, of kinds, and of A.
struct RecordedDivergence {
  int64_t steps = 0;      // that were compared
  int64_t tensors = 0;    // ... in all of them, on all ranks
  int64_t last_step = 0;  // the last that was compared
  int64_t differing = 0;  // of the first step and rank that differ
  int64_t in_step = 0;    // tensors compared there
  int64_t step = 0;
  bool at_end = false;  // it is the state at the end, after `step`
  int64_t rank = 0;
  std::string kind, tensor;  // of the first
  std::string a, b;          // its hashes; empty: that side has no such tensor
  bool found() const { return differing > 0; }
};

// The first in which another rank differs from rank 0 within one recording, buffers aside (ranks
// may keep buffers of their own). `rank`: which.
struct RankDivergence {
  int64_t rank = 0, step = 0;
  std::string kind, tensor;
  bool found() const { return rank > 0; }
};

enum class RecordedVerdict : uint8_t { pass, fail, inconclusive, nothing };

struct RecordedComparison {
  RecordedVerdict verdict = RecordedVerdict::nothing;
  RecordedDivergence first;
  RankDivergence ranks_of_a, ranks_of_b;
  RankDivergence buffers_of_a, buffers_of_b;
  std::vector<RecordedGap> gaps;  // none: both are whole
};

// Of the same world size and hash version: the numbers of other worlds are rounded otherwise, so
// that their hashes say nothing.
RecordedComparison compare_recordings(const RecordedHashes& a, const RecordedHashes& b);

// What both lack of being whole, whatever is compared of them.
std::vector<RecordedGap> gaps_of(const RecordedHashes& a, const RecordedHashes& b);
RankDivergence divergence_of_ranks(const RecordedHashes& recording);
// The same of buffers alone, where differing is no defect: DDP broadcasts rank 0's before the next
// forward, or never.
RankDivergence divergence_of_buffers(const RecordedHashes& recording);

}  // namespace lockstep
