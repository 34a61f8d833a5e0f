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

}  // namespace lockstep
