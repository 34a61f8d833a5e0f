#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/cli/verbs.h"

namespace lockstep {

// Gives every run of `files` a folder of its own below `path`: PATH/0001 for the first, in their
// order, made here with what is above them. Returns the error where `path` is no folder, cannot be
// written to, or holds anything already: an export never overwrites.
std::optional<InputError> make_export_folders(const std::string& path,
                                              std::vector<SelectedFile>* files);

}  // namespace lockstep
