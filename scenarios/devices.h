#pragma once

#include <cstdint>
#include <string>

#include "scenarios/scenario.h"

namespace lockstep {

// A rank r with n devices has those from r x n to r x n + n - 1. The layers of its model lie on
// them one after the other, in equal shares: layer i of L (from 0) on device i x n / L of the rank.

// Which of its rank's devices holds a parameter ("fc2.weight"), from 0. Of models that the plan
// lets live on several; of others 0.
int64_t device_of(const Scenario& scenario, const std::string& parameter);

}  // namespace lockstep
