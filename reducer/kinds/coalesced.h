#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "reducer/communicator.h"

namespace lockstep {

// Gives all ranks the values of rank `root` of `tensors`, with few large broadcasts: one for each
// dtype and device, in pieces of at most 250 MiB. Blocks.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, Communicator& communicator,
                         Deadline deadline, int64_t root = 0);

}  // namespace lockstep
