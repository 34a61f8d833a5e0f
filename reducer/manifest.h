#pragma once

#include "reducer/communicator.h"
#include "scenarios/base/named_tensor.h"

namespace lockstep {

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

}  // namespace lockstep
