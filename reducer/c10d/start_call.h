#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "reducer/c10d/process_group_adapter.h"
#include "reducer/comm/collective.h"

namespace lockstep {

using C10dBackend = ProcessGroupAdapter::Base;  // what ProcessGroupGloo and ProcessGroupNCCL are

// Starts `call` on a backend of LibTorch's. `summed` is where the sum of an all_reduce is made, and
// that of a reduce_scatter, which not every backend has: who waits copies this rank's part out.
// Throws what the backend throws.
c10::intrusive_ptr<c10d::Work> start_call(C10dBackend& backend, const CollectiveCall& call,
                                          at::Tensor& summed);

}  // namespace lockstep
