#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Those of a rank, in order; empty where the scenario's device is the cpu. Stand-in devices
// (stand_in.h) are the rank's own; of CUDA's the rank has one, number `local_rank` (among the ranks
// of its host) modulo how many there are, so that several ranks may share one. Throws
// std::runtime_error where CUDA has none.
std::vector<c10::Device> rank_devices(const Scenario& scenario, int64_t rank, int64_t local_rank);

// Once per process, after fork and before LibTorch is asked anything: loads what the scenario's
// device needs and makes it deterministic. Throws std::runtime_error where CUDA has no device.
void prepare_devices(const Scenario& scenario);

// Where golden runs compute: on CUDA's first device where the ranks are on CUDA and /golden_device
// is "same", else on the cpu (whose bits those of stand-in devices are).
std::vector<c10::Device> golden_devices(const Scenario& scenario);

// The same values as a tensor of the cpu, without a gradient; a tensor of the cpu as it is. Waits
// for the stream that is current; of a stand-in device it is the same memory.
at::Tensor on_host(const at::Tensor& tensor);

// "cpu", "stand_in:3", "cuda:0", and back.
std::string device_name(c10::Device device);
c10::Device device_of_name(const std::string& name);

}  // namespace lockstep
