#pragma once

#include <optional>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// What every way of calibrating does with the machine that it has fitted.

// Writes the file whole, where `path` names one. Bad input: it cannot be written.
std::optional<InputError> write_machine(const std::string& path, const std::string& file);

// An exit code: writes it and prints what was `told` and the answer; without a path the file itself
// is printed, and nothing else.
int leave_machine(const std::string& path, const std::string& file, const std::string& told,
                  const std::string& answer);

}  // namespace lockstep
