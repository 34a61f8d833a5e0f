#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Devices that stand in for real ones: LibTorch's PrivateUse1, registered at the first call of
// rank_devices(). Their memory is the host's, and every operation is the CPU's own on it, so that
// results are the CPU's bit for bit; but a tensor has its device, copies between devices are
// explicit, an operation on tensors of two devices is an error, and backward runs on a thread for
// each device, as with real ones.

// Those of a rank, in order; empty where the scenario's device is the cpu. Any thread.
std::vector<c10::Device> rank_devices(const Scenario& scenario, int64_t rank);

// The same memory as a tensor of the cpu, without a gradient; a tensor of the cpu as it is.
at::Tensor on_host(const at::Tensor& tensor);

// "cpu", "stand_in:3", and back.
std::string device_name(c10::Device device);
c10::Device device_of_name(const std::string& name);

}  // namespace lockstep
