#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "reducer/communicator.h"
#include "scenarios/base/named_tensor.h"

namespace lockstep {

// What may lie in one flat tensor: values of one dtype, on one device.
using MemoryKey = std::tuple<at::ScalarType, c10::DeviceType, int>;
MemoryKey memory_key(const at::Tensor& tensor);

// Gives all ranks the values of rank `root` of `tensors`, with few large broadcasts: one for each
// dtype and device, in pieces of at most 250 MiB. Blocks.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, Communicator& communicator,
                         Deadline deadline, int64_t root = 0);

// Compares name, dtype, shape, stride and requires_grad of all tensors across ranks, with one
// all_gather of fixed-size digests; on a difference the full texts are gathered and a CommError
// says which rank, which tensor, what it has and what most ranks have (of two ranks, rank 0):
// rejected on a rank that is not like most, peer_lost on the others.
// Collective; blocks until the deadline at most.
void check_manifest(const NamedTensors& parameters, const NamedTensors& buffers,
                    Communicator& communicator, Deadline deadline);

// Compares the values (by hash) of all tensors with rank 0's, after the broadcast at construction.
// Collective. Empty if all ranks agree, else one line that names rank and tensor.
std::string differing_values(const NamedTensors& parameters, const NamedTensors& buffers,
                             Communicator& communicator, Deadline deadline);

// Gives every rank the mean of all ranks' parameters, as PyTorch's model averagers do: all trained
// parameters of a dtype in one flat tensor, divided by the number of ranks, then added. In place;
// optimizer state and buffers stay as they are. Collective; blocks until the deadline at most;
// throws CommError. One thread.
void average_parameters(const NamedTensors& parameters, Communicator& communicator,
                        Deadline deadline);

}  // namespace lockstep
