#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "golden/compare.h"
#include "scenarios/scenario.h"
#include "sim/record/evidence.h"

namespace lockstep {

// What a rank holds at the moment of a mismatch. Pointers may be null where not known.
struct MismatchContext {
  Lane lane = Lane::replica;
  int64_t step = 0;
  int64_t rank = 0;
  int64_t world_size = 1;
  const StateLayout* layout = nullptr;
  const std::byte* run = nullptr;
  const std::byte* golden = nullptr;
  // Of each entry: how far an element may be off. Empty where every bit counts.
  std::vector<double> element_bounds;
  const std::byte* local = nullptr;   // this rank's gradients before the reduction
  const std::byte* before = nullptr;  // the run's state one step earlier
  const Part* clipping = nullptr;     // the scenario's
  const std::byte* shards = nullptr;  // the golden run's, rank after rank
  int64_t shard_bytes = 0;
  std::function<int64_t(int64_t)> bucket_of;              // parameter -> bucket or -1
  std::function<std::vector<int64_t>(int64_t)> shape_of;  // entry -> shape
};

// Turns a difference into evidence: where, both values, and the measurements that a cause is later
// named by (one ratio everywhere, parts of buckets, another rank's shard, a few flipped bits).
// Names no cause itself. No LibTorch.
MismatchEvidence diagnose(const MismatchContext& context, const BitDifference& difference);

// Writes `evidence` to `path` (temporary file, then rename); nothing where path is empty. A failure
// goes to the log: the records still tell that there was a mismatch.
void write_evidence(const std::string& path, const Evidence& evidence);

// Writes the two states of a mismatch as raw bytes, PREFIX.LANE.step-N.run and .golden, with an
// index of names, dtypes and offsets beside them (.index.txt). Nothing where prefix is empty.
void dump_states(const std::string& prefix, const MismatchContext& context);

// The part of diagnose() between averaged gradients and new weights: clipping, skipped steps,
// learning rate. Fills in clipping, skipped_run, skipped_golden, update_ratio.
void describe_update(const MismatchContext& context, MismatchEvidence* evidence);

}  // namespace lockstep
