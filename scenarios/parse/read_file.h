#pragma once

#include <optional>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// The bytes of a file of at most 16 MiB, or why there are none.
std::optional<std::string> read_input_file(const std::string& path, InputErrors* errors);

}  // namespace lockstep
