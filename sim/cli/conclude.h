#pragma once

#include <string>

#include "sim/cli/run_directory.h"
#include "sim/cli/verbs.h"
#include "sim/report/document.h"

namespace lockstep {

// What follows once all runs are judged, however they were executed.

int exit_code_of(const std::string& verdict);
// Fills in what follows from its runs, errors and `signal` (0: none): verdict and exit code.
void conclude(int signal, ResultDocument* document);
// Kept beside the evidence, for whoever looks at it later; without it the answer still stands.
void leave_result(const RunDirectory& directory, const ResultDocument& document);
// Errors on standard error, --json, reports for CI, the answer on standard output: the exit code.
int report(const VerifyOptions& options, const ResultDocument& document);
// Of a selection without a run: says why on standard error, in --json and in reports for CI.
int nothing_selected(const std::string& why, const char* verb, const std::string& json,
                     const CiOptions& ci);

}  // namespace lockstep
