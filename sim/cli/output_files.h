#pragma once

#include <functional>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// Files that options name ("--json FILE"). An empty path: the option was not given.

// Adds an error if no file can be made or replaced at `path`. Asked before anything runs.
void check_output(const char* option, const std::string& path, InputErrors* errors);
// Writes it whole (write_atomically): `code`, or 2 with the reason on standard error. `text` is
// called only where there is a path.
int write_output(const char* option, const std::string& path, int code,
                 const std::function<std::string()>& text);

}  // namespace lockstep
