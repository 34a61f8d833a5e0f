#pragma once

#include <cstdint>
#include <vector>

#include "reducer/bucket.h"

namespace lockstep {

// Who updates which weights where no rank updates all of them. Free of LibTorch.

// A run of elements in the memory of one parameter that one rank, its owner, updates for all.
struct OptimizerShard {
  int64_t parameter = 0;  // registration index
  int64_t begin = 0;      // its first element
  int64_t numel = 0;
  int64_t owner = 0;
  bool operator==(const OptimizerShard&) const = default;
};

// numels: elements of each parameter by registration index; 0 where it is not trained. Every
// element of these lies in one piece, and no piece is empty.

// ZeroRedundancyOptimizer's partition (torch/distributed/optim/zero_redundancy_optimizer.py): whole
// parameters, the largest first, of equal ones in registration order; each to the rank that owns
// fewest elements so far, of equal ones the lowest. Owner after owner, each in the order of
// dealing.
std::vector<OptimizerShard> zero_shards(const std::vector<int64_t>& numels, int64_t world_size);

// Of each bucket of `layout`, laid out flat and padded to a multiple of world_size, every rank owns
// an equal part, in the order of the ranks. By bucket, in the order of the flat elements.
std::vector<std::vector<OptimizerShard>> bucket_shards(const BucketLayout& layout,
                                                       const std::vector<int64_t>& numels,
                                                       int64_t world_size);

// Elements of a rank's part of a bucket of `total` elements, padding included.
int64_t sharded_part(int64_t total, int64_t world_size);

}  // namespace lockstep
