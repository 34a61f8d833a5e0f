#pragma once

#include "reducer/communicator.h"
#include "scenarios/base/named_tensor.h"

namespace lockstep {

// Gives every rank the mean of all ranks' parameters, as PyTorch's model averagers do: all trained
// parameters of a dtype in one flat tensor, divided by the number of ranks, then added. In place;
// optimizer state and buffers stay as they are. Collective; blocks until the deadline at most;
// throws CommError. One thread.
void average_parameters(const NamedTensors& parameters, Communicator& communicator,
                        Deadline deadline);

}  // namespace lockstep
