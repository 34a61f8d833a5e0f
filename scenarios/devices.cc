#include "scenarios/devices.h"

#include <cstdlib>

namespace lockstep {

int64_t device_of(const Scenario& scenario, const std::string& parameter) {
  if (scenario.devices_per_rank == 1 || scenario.model.kind != "mlp") return 0;
  const auto layers = static_cast<int64_t>(scenario.model.options.integers("hidden").size()) + 1;
  const int64_t layer = std::atoll(parameter.c_str() + 2) - 1;  // "fc2.weight"
  return layer * scenario.devices_per_rank / layers;
}

}  // namespace lockstep
