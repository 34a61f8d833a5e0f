#pragma once

#include <string>

namespace lockstep {

// What this worker is linked with, as one line of JSON: torch, gloo, blas and the CPU capability
// that ATen and BLAS chose on this machine. The fingerprint of bits (docs/numerics.md).
std::string libraries_json();

// The GPUs that this worker can use, as one line of JSON: cuda{count, problem, name, capability,
// memory_bytes, driver} and no_nccl, why there is no communicator nccl ("" where there is). Loads
// LibTorch's CUDA library.
std::string devices_json();

// libraries_json() in one line for people and for stored goldens.
std::string fingerprint();

// Writes libraries_json() beside the run directories, once per invocation.
void leave_libraries(const std::string& run_dir);

}  // namespace lockstep
