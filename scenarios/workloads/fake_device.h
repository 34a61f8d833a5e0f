#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Devices that stand in for real ones: LibTorch's PrivateUse1, registered at the first call of
// fake_devices(). Their memory is the host's, and every operation is the CPU's own on it, so
// that results are the CPU's bit for bit; but a tensor has its device, copies between devices are
// explicit, an operation on tensors of two devices is an error, and backward runs on a thread for
// each device, as with real ones.

// Devices `rank` x n to `rank` x n + n - 1 of a scenario with n devices per rank. Any thread.
std::vector<c10::Device> fake_devices(const Scenario& scenario, int64_t rank);

}  // namespace lockstep
