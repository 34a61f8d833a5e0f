#include "sim/worker/rank_batch.h"

#include <ATen/ops/empty.h>

namespace lockstep {

at::Tensor RankBatch::all_gather(const at::Tensor& row) {
  const at::Tensor rows = at::empty({communicator_.world_size(), row.numel()}, row.options());
  communicator_.all_gather(rows, row.contiguous(), deadline_after(timeout_))->wait();
  return rows;
}

}  // namespace lockstep
