#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

// The sum of sparse COO tensors of one shape and dtype, one of each rank, put into `out` coalesced.
// Each must be coalesced but for a single one. Added in order of rank, as ProcessGroupGloo does.
void put_sparse_sum(const std::vector<at::Tensor>& of_rank, at::Tensor out);

}  // namespace lockstep
