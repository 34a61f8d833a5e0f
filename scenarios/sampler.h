#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// The orders in which samplers of LibTorch and of its Python API hand out a data set, bit for bit,
// without LibTorch.

// at::randperm(count) with a CPU generator seeded with `seed`; count below 2^32 / 20.
std::vector<int64_t> random_permutation(int64_t count, uint64_t seed);

// How one epoch of `samples` samples is dealt to `world_size` ranks: rows of rank 0, 1, ...; all
// have the same number of rows, unless they are not padded.
using DealtRows = std::vector<std::vector<int64_t>>;

// Rows per rank when samples are repeated (drop: left out) so that the ranks have equally many.
int64_t rows_per_rank(int64_t samples, int64_t world_size, bool drop);

// torch.utils.data.DistributedSampler: shuffled by seed + epoch (or in the order of the set), the
// head repeated as often as it takes or the tail dropped, then dealt in turn: rank r gets rows r,
// r + world_size, ...
struct DistributedSamplerOptions {
  bool shuffle = true;
  bool drop_last = false;
  bool pad = true;  // without: the first ranks have one row more where it takes that
  int64_t seed = 0;
};
DealtRows deal_in_turn(const DistributedSamplerOptions& options, int64_t samples,
                       int64_t world_size, int64_t epoch);

// torch::data::samplers::DistributedRandomSampler (shuffle) and DistributedSequentialSampler: the
// head repeated or the tail dropped, shuffled by the epoch alone, then dealt in blocks: rank r gets
// the r-th part. The shuffle is that of libstdc++, which LibTorch was built with.
DealtRows deal_in_blocks(bool shuffle, bool allow_duplicates, int64_t samples, int64_t world_size,
                         int64_t epoch);

}  // namespace lockstep
