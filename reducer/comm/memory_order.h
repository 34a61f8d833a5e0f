#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

// A gradient lies in memory as its parameter does (channels_last, transposed), if that fills its
// memory without gaps and no two elements share a place; otherwise it is contiguous. So LibTorch
// accumulates gradients, and DDP lays out its buckets.
inline bool fills_memory(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

// The elements of such a tensor as they lie in memory, one-dimensional: a view.
at::Tensor in_memory_order(const at::Tensor& tensor);

}  // namespace lockstep
