#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Bucket assignment, free of LibTorch: the reducer, the plan and the simulator share it.

// What assignment needs to know of one parameter.
struct BucketItem {
  int64_t bytes = 0;
  int32_t key = 0;      // same key: same dtype and device, may share a bucket
  bool sparse = false;  // expected to have a sparse gradient: gets a bucket of its own
};

// Parameter indices per bucket, in launch order; inside a bucket in storage order.
using BucketLayout = std::vector<std::vector<int64_t>>;

// DDP's greedy assignment (torch compute_bucket_assignment_by_size): walk `order`; add a parameter
// to the open bucket of its key; close the bucket *after* its size reaches the limit, so a bucket
// may exceed it and a parameter is never split. The list of limits advances per key, its last
// entry repeats. limits_bytes: not empty, each >= 0. The resulting buckets are sorted by the
// smallest position in `order` that they hold, except where order is given as rebuilt
// (see rebuilt_layout), which keeps the order of closing.
BucketLayout assign_buckets(const std::vector<BucketItem>& items, const std::vector<int64_t>& order,
                            const std::vector<int64_t>& limits_bytes);

// DDP's layout at construction: with one_bucket_first (no find_unused, or static graph) a single
// unlimited bucket per key in registration order, else first_bucket_bytes and bucket_cap_bytes; the
// list of buckets is then reversed.
BucketLayout layout_at_construction(const std::vector<BucketItem>& items, bool one_bucket_first,
                                    int64_t first_bucket_bytes, int64_t bucket_cap_bytes);

// DDP's layout after step 1: in the order in which gradients became ready on rank 0.
BucketLayout rebuilt_layout(const std::vector<BucketItem>& items,
                            const std::vector<int64_t>& ready_order, int64_t first_bucket_bytes,
                            int64_t bucket_cap_bytes);

// "2^20 bytes" of DDP's option names, rounded down to whole bytes.
int64_t bytes_of_mib(double mib);

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
