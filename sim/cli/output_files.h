#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {

// Files that options name ("--json FILE"). An empty path: the option was not given.

// What an option does with the path that it names.
enum class PathUse { none, read, written, folder };
// FILE, and FILE|DIR/, in the group Output are written, and so is any --out; all other paths are
// read.
PathUse path_use(const CLI::Option& option);

// Do both paths lead to one file, which need not be there?
bool same_file(const std::string& a, const std::string& b);

// Adds an error if no file can be made or replaced at `path`. Asked before anything runs.
void check_output(const char* option, const std::string& path, InputErrors* errors);
// Writes it whole (write_atomically): `code`, or 2 with the reason on standard error. `text` is
// called only where there is a path.
int write_output(const char* option, const std::string& path, int code,
                 const std::function<std::string()>& text);

}  // namespace lockstep
