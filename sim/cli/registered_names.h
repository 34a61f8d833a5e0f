#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/cli/select.h"

namespace lockstep {

// Before anything runs: the names of registered models, data sets, reducers and comm hooks that
// scenarios ask for and `worker` does not have, an error each. Starts the worker where a scenario
// has a part of kind "registered", for as long as LibTorch takes to load; an empty list where it
// cannot be asked, since a run says then what is wrong with it.
InputErrors unknown_names(const std::string& worker, const std::vector<const RunPlan*>& plans);
InputErrors unknown_names(const std::string& worker, const std::vector<SelectedFile>& files);

}  // namespace lockstep
