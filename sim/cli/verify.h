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

// --save-weights FILE: what an exported run left at its end (rank 0's parameters, buffers and
// optimizer state) as a checkpoint.

// Before anything runs: a name of neither format, a place that cannot be written to, not one run.
std::optional<InputError> save_weights_error(const std::string& path,
                                             const std::vector<SelectedFile>& files);
// The only run of `files`.
const RunPlan& only_run(const std::vector<SelectedFile>& files);

// From the run's export to `path`; why not, where that cannot be: a run that did not reach its end
// left none.
std::optional<InputError> save_weights(const std::string& path, const std::string& export_dir);

}  // namespace lockstep
