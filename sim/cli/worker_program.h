#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Standard output of a program that must end within `timeout` with exit code 0; else nothing, and
// why. The program is killed when the time is up.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds timeout, std::string* why);

}  // namespace lockstep
