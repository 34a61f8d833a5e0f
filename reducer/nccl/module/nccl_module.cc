// lockstep-nccl.so: the only unit that names NCCL and CUDA.
#include "reducer/nccl/module/nccl_module.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>

extern "C" void lockstep_make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                   int world_size, std::chrono::milliseconds timeout,
                                   lockstep::NcclBackend* made) {
  // Its watchdogs would end the process, where a rank's deadline is to be an error with a name.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 0);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world_size, options);
  made->backend = group;
  made->abort = [group] { group->abort(); };
}
