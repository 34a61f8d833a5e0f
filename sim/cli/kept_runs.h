#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/launch/executor.h"

namespace lockstep {

// Folders that verify and run left, with --keep or of a run not as expected.

// Absolute and without a slash at its end.
std::string whole_path(const std::string& folder);
// `folder` itself, or the numbered ones of an invocation in it, in their order. Absolute.
std::vector<std::string> run_folders(const std::string& folder);
// The error of a folder that cannot be taken.
InputError refused_folder(const std::string& folder, const std::string& why);
Expected<RunOutcome> read_run_folder(const std::string& folder);

}  // namespace lockstep
