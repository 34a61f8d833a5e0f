#pragma once

#include <functional>
#include <optional>
#include <string>

#include "scenarios/base/error.h"
#include "sim/report/ci/test_report.h"
#include "sim/report/html/page.h"
#include "sim/report/trace/trace.h"

namespace lockstep {

// Files that options name ("--json FILE"). An empty path: the option was not given.

// Do both paths lead to one file, which need not be there?
bool same_file(const std::string& a, const std::string& b);

// Adds an error if no file can be made or replaced at `path`. Asked before anything runs.
void check_output(const char* option, const std::string& path, InputErrors* errors);
// Writes it whole (write_atomically): `code`, or 2 with the reason on standard error. `text` is
// called only where there is a path.
int write_output(const char* option, const std::string& path, int code,
                 const std::function<std::string()>& text);

// The words that this process was started with, for a shell.
std::string own_command();

// Writes --html: `code`, or 2 with the reason on standard error. `page` is called only where there
// is a path; the command line and the exit code are filled in here.
int write_page(const std::string& path, int code, const std::function<HtmlPage()>& page);

// Writes --trace, of several runs that of `index`, or says why it could not. Nothing where the
// option was not given. trace_error() was asked before anything ran.
std::optional<InputError> try_trace(const TraceOptions& options, const RunOutcome& outcome,
                                    size_t index = 0, size_t runs = 1);
// The same: `code`, or 2 with the reason on standard error.
int leave_trace(const TraceOptions& options, const RunOutcome& outcome, int code, size_t index = 0,
                size_t runs = 1);

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
