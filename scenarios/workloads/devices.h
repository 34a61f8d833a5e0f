#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scenarios/scenario.h"
#include "scenarios/workloads/workload.h"

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

// Those of a rank, in order; empty where the scenario's device is the cpu. Fake devices
// (fake_device.h) are the rank's own; of CUDA's the rank has one, number `local_rank` (among the
// ranks of its host) modulo how many there are, so that several ranks may share one. Throws
// std::runtime_error where CUDA has none.
std::vector<c10::Device> rank_devices(const Scenario& scenario, int64_t rank, int64_t local_rank);

// Once per process, after fork and before LibTorch is asked anything: loads what the scenario's
// device needs and makes it deterministic. Throws std::runtime_error where CUDA has no device.
void prepare_devices(const Scenario& scenario);

// Where golden runs compute: on CUDA's first device where the ranks are on CUDA and /golden_device
// is "same", else on the cpu (whose bits those of fake devices are).
std::vector<c10::Device> golden_devices(const Scenario& scenario);

// The same values as a tensor of the cpu, without a gradient; a tensor of the cpu as it is. Waits
// for the stream that is current; of a fake devices it is the same memory.
at::Tensor on_host(const at::Tensor& tensor);

// "cpu", "fake:3", "cuda:0", and back.
std::string device_name(c10::Device device);
c10::Device device_of_name(const std::string& name);

// `model` with all its parameters and buffers on one device of an accelerator, as Module::to()
// would move them; forward() takes inputs of the cpu. Handles of parameters that were taken before
// stay good.
std::unique_ptr<Model> place_on(c10::Device device, std::unique_ptr<Model> model);

// An mlp whose layers lie on several devices (scenarios/scenario.h), with the weights of `model`,
// which was built on the cpu. Activations move from device to device; the output stays on the last.
// Aborts for a model of another kind: the plan refuses those.
std::unique_ptr<Model> spread_over(const std::vector<c10::Device>& devices,
                                   const Scenario& scenario, const Model& model);

}  // namespace lockstep
