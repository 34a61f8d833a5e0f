#pragma once

#include <string>

#include "scenarios/base/error.h"
#include "sim/report/ci/test_report.h"

namespace lockstep {

// Reports for continuous integration, beside the terminal's and --json.
struct CiOptions {
  std::string junit;                 // a file, or empty
  std::string annotations = "auto";  // auto: where GITHUB_ACTIONS is "true" | github | none
};

// Where --junit could not be written, asked before anything is run.
InputErrors ci_errors(const CiOptions& options);

// Writes --junit; prints annotations on standard error, for files of scenarios on the line of
// `expect`, and appends the summary to the file that GITHUB_STEP_SUMMARY names. Returns `code`, or
// 2 if the JUnit file could not be written; a summary that cannot be written is a warning.
int leave_ci_reports(const CiOptions& options, TestReport report, int code);

// The line of a scenario file on which it says what it expects; of its name where it does not, 1
// where it cannot be read.
int64_t expectation_line(const std::string& path);

}  // namespace lockstep
