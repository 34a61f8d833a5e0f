#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "reducer/communicator.h"

namespace lockstep {

// What may lie in one flat tensor: values of one dtype, on one device.
using MemoryKey = std::tuple<at::ScalarType, c10::DeviceType, int>;
MemoryKey memory_key(const at::Tensor& tensor);

// Gives all ranks the values of rank `root` of `tensors`, with few large broadcasts: one for each
// dtype and device, in pieces of at most 250 MiB. Blocks.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, Communicator& communicator,
                         Deadline deadline, int64_t root = 0);

}  // namespace lockstep
