#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

// The ranks whose samples a layer normalizes together (sync_batch_norm.h). All of them call the
// same layers in the same order.
class BatchGroup {
 public:
  virtual ~BatchGroup() = default;
  // Gives the rows of all ranks, in order of rank: [ranks, numbers of a row]. `row`: one
  // dimension, the same length and dtype on all ranks. Blocks until all have called; throws where
  // a rank does not come.
  virtual at::Tensor all_gather(const at::Tensor& row) = 0;
};

}  // namespace lockstep
