#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

// From the operating system, for what nobody else may guess. Waits for nothing once the machine has
// booted.
std::string random_bytes(size_t count);

}  // namespace lockstep
