#pragma once

#include <cstddef>
#include <string>

#include "golden/state.h"
#include "scenarios/scenario.h"

namespace lockstep {

// What `runs[].golden` says, as JSON text: do run and one-device golden run print the same numbers
// as the stored golden, at its decimals; how many weights of the run differ from one device in
// their last bits; are the fingerprints the same. Empty if the scenario names no stored golden.
std::string compare_with_stored(const Scenario& scenario, const StateLayout& layout,
                                const std::byte* run, const std::byte* one_device);

}  // namespace lockstep
