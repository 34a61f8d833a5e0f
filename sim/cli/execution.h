#pragma once

#include <string>
#include <vector>

#include "sim/cli/verbs.h"
#include "sim/report/document.h"
#include "sim/report/earlier_result.h"

namespace lockstep {

// Runs what is selected and judges it, with a progress line on standard error; `out_dir` holds the
// evidence. `earlier`: what they are compared with, or null. Errors of the environment are in the
// document.
ResultDocument execute_selected(const VerifyOptions& options,
                                const std::vector<SelectedFile>& files, const std::string& worker,
                                const std::string& out_dir, const EarlierResult* earlier = nullptr);

}  // namespace lockstep
