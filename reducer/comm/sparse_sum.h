#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

// The sum of sparse COO tensors of one shape and dtype, one of each rank, put into `out` coalesced.
// Each must be coalesced but for a single one. Added in order of rank, as ProcessGroupGloo does.
void put_sparse_sum(const std::vector<at::Tensor>& of_rank, at::Tensor out);

// Brings the ranks' bytes together, rank after rank: `own` into its place and all others' into
// theirs. bytes: how many each rank has.
using GatherBytes =
    std::function<void(const void* own, const std::vector<int64_t>& bytes, void* all)>;

// The sparse all-reduce of a backend that can gather. Throws CommError(rejected) where ranks have
// different numbers of sparse dimensions.
void sum_sparse_tensors(const at::Tensor& tensor, int64_t world_size, const GatherBytes& gather);

}  // namespace lockstep
