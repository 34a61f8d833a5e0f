#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// CUDA without its headers: this program is linked with torch_cpu alone, and LibTorch's own library
// is loaded when a scenario asks for a GPU, so that one build serves with and without one.

struct CudaDevices {
  int64_t count = 0;
  std::string problem;  // why there is none, as one clause; empty where there is one
  // Of device 0, empty where there is none:
  std::string name;        // "NVIDIA H200"
  std::string capability;  // "9.0"
  int64_t memory_bytes = 0;
  std::string driver;  // the CUDA version that the driver serves: "13.0"
};

// Loads LibTorch's CUDA library and the driver at the first call, which takes seconds; the same
// answer from then on. Any thread, but before LibTorch is asked anything about CUDA: it keeps its
// first answer. Never in a process that is to be forked.
const CudaDevices& cuda_devices();

// What cuda_devices() found if it has been called, else null. For fingerprints.
const CudaDevices* cuda_devices_if_asked();

// Equal inputs, equal bits: no TF32, no search for the fastest convolution, cuBLAS with a workspace
// of its own for each stream. Once per process, after cuda_devices() has found one.
void make_cuda_deterministic();

}  // namespace lockstep
