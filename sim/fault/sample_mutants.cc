#include <algorithm>

#include "sim/fault/mutants.h"

namespace lockstep {
namespace {

// The batch begins one sample late.
std::vector<int64_t> shifted(std::vector<int64_t> samples, int64_t step, int64_t rank,
                             int64_t world_size, Split* split) {
  const std::vector<int64_t> next = split->shard(step, (rank + 1) % world_size);
  if (samples.empty() || next.empty()) return samples;
  std::rotate(samples.begin(), samples.begin() + 1, samples.end());
  samples.back() = next.front();
  return samples;
}

}  // namespace

std::vector<int64_t> followed_samples(const std::vector<MutantSpec>& mutants, int64_t step,
                                      int64_t rank, int64_t world_size, Split* split) {
  std::vector<int64_t> samples = split->shard(step, shard_rank(mutants, rank, world_size));
  for (const MutantSpec& mutant : mutants) {
    if (mutant.step.value_or(step) != step) continue;
    const bool own = mutant.rank.value_or(rank) == rank;
    if (mutant.kind == "swap_shards" && mutant.rank && mutant.other) {
      if (own) samples = split->shard(step, *mutant.other);
      if (rank == *mutant.other) samples = split->shard(step, *mutant.rank);
    }
    if (mutant.kind == "stale_shard" && own && step > 1) samples = split->shard(step - 1, rank);
    if (mutant.kind == "shift_shard" && own)
      samples = shifted(std::move(samples), step, rank, world_size, split);
  }
  return samples;
}

}  // namespace lockstep
