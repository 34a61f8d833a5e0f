#include "scenarios/workloads/rank_devices.h"

#include <cstdlib>
#include <stdexcept>

#include "scenarios/workloads/cuda.h"
#include "scenarios/workloads/stand_in.h"
#include "scenarios/workloads/stand_in_memory.h"

namespace lockstep {
namespace {

using c10::Device;

constexpr const char* kStandInPrefix = "stand_in:";

Device cuda_device(int64_t local_rank) {
  const CudaDevices& devices = cuda_devices();
  if (devices.count == 0) throw std::runtime_error("device cuda: " + devices.problem);
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(local_rank % devices.count)};
}

}  // namespace

std::vector<Device> rank_devices(const Scenario& scenario, int64_t rank, int64_t local_rank) {
  if (scenario.device == "stand_in") return stand_in_devices(scenario, rank);
  if (scenario.device == "cuda") return {cuda_device(local_rank)};
  return {};
}

void prepare_devices(const Scenario& scenario) {
  if (scenario.device != "cuda") return;
  cuda_device(0);
  make_cuda_deterministic();
}

std::vector<Device> golden_devices(const Scenario& scenario) {
  if (scenario.device != "cuda" || scenario.golden_device != "same") return {};
  return {cuda_device(0)};
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return tensor;
  if (tensor.device().type() == kStandIn) return read_stand_in(tensor);
  return tensor.detach().cpu();
}

std::string device_name(Device device) {
  return device.type() == kStandIn ? kStandInPrefix + std::to_string(device.index()) : device.str();
}

Device device_of_name(const std::string& name) {
  if (!name.starts_with(kStandInPrefix)) return Device(name);
  return {kStandIn, static_cast<c10::DeviceIndex>(std::atoi(name.c_str() + name.find(':') + 1))};
}

}  // namespace lockstep
