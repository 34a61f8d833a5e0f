#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

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

// Which samples of the data set belong to a step (from 1), and to which rank: what split.kind
// says. Split kinds contiguous and manual take consecutive batches and cut each into parts, one
// per rank; samplers deal a whole epoch to the ranks, which take batches from their rows, so that
// the last of an epoch may be short. Some ranks may have fewer batches in an epoch than others
// (batches_per_rank, a sampler that does not pad): their shards are empty then. Of reducer
// invariant "rank" is the number of a virtual shard in all of this (shards_of()). No random numbers
// but those that a sampler's seed fixes. One thread per object.
class Split {
 public:
  // `scenario` must outlive this object.
  explicit Split(const Scenario& scenario);

  // The samples that rank `rank` trains on, in order.
  std::vector<int64_t> shard(int64_t step, int64_t rank);
  // Those of all ranks, rank after rank.
  std::vector<int64_t> batch(int64_t step);

  // How many samples batch() has, without dealing them.
  int64_t batch_samples(int64_t step) const;

  // Of the rank with most batches.
  int64_t steps_per_epoch() const;
  // Batches that rank `rank` has in an epoch; whether one of them belongs to this step; ranks with
  // a batch in this step; whether all ranks have one in every step.
  int64_t batches(int64_t rank) const;
  bool has_batch(int64_t step, int64_t rank) const;
  int64_t active_ranks(int64_t step) const;
  bool is_even() const;
  // The step (from 1) of the first epoch with the same samples; 0 where every epoch has an order
  // of its own.
  int64_t same_step(int64_t step) const;
  // Every number of samples that a rank with a batch may have in a step, each once; the first
  // step's of rank 0 first.
  std::vector<int64_t> shard_sizes() const;
  // The smallest of them; 0: a rank is left without.
  int64_t least_shard() const;

 private:
  int64_t rows(int64_t rank) const;
  int64_t rows_per_step() const;
  void deal(int64_t epoch);
  std::vector<int64_t> part_of_batch(int64_t step, int64_t rank) const;
  bool pads() const;

  const Scenario& scenario_;
  const int64_t shards_;  // as many as ranks, or virtual ones
  const int64_t samples_;
  int64_t dealt_epoch_ = -1;
  DealtRows dealt_;
};

// Does the split deal out whole epochs (samplers), not batch after batch?
bool has_sampler(const Part& split);
// Is the order of each epoch another one?
bool shuffles_each_epoch(const Part& split);

// The same as those of Split, at the cost of making one.
std::vector<int64_t> batch_indices(const Scenario& scenario, int64_t step);
std::vector<int64_t> shard_indices(const Scenario& scenario, int64_t step, int64_t rank);

}  // namespace lockstep
