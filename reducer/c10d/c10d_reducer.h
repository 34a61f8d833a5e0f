#pragma once

#include <memory>

#include "reducer/reducer.h"

namespace lockstep {

// LibTorch's own c10d::Reducer over any Communicator, driven as DistributedDataParallel's Python
// wrapper drives it. static_graph gives its first layout and its rebuild, no more.
std::unique_ptr<Reducer> make_c10d_reducer(const ReducerOptions& options,
                                           const NamedTensors& parameters,
                                           const NamedTensors& buffers, Communicator& communicator,
                                           Probe& probe);

}  // namespace lockstep
