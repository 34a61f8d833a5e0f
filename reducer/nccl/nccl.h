#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "reducer/communicator.h"

namespace lockstep {

// LibTorch's ProcessGroupNCCL. What names its types is a module of its own (reducer/nccl/module),
// built where LibTorch has CUDA and NCCL's headers are there, and loaded on demand: so this program
// needs neither.

// Why there is no communicator nccl here, as one clause; empty where the module can be loaded.
// Loads it, and so wants LibTorch's CUDA library to be loaded (scenarios/workloads/devices.h). Any
// thread.
std::string why_no_nccl();

// One rank to a device. Blocks until connected with all ranks or the deadline has passed. NCCL's
// own watchdogs are off: deadlines are the communicator's. Throws CommError.
std::unique_ptr<Communicator> make_nccl_communicator(const CommOptions& options,
                                                     std::shared_ptr<Store> store,
                                                     c10::Device device, Deadline deadline);

}  // namespace lockstep
