#pragma once

#include <string>
#include <string_view>

#include "sim/report/ci/test_report.h"

namespace lockstep {

// What GitHub Actions reads from a step: workflow commands in its output, and Markdown in a file.

// No more than these: GitHub shows ten annotations of a kind and step.
inline constexpr int64_t kAnnotationsMost = 10;

// "::error file=a.json,line=7,title=...::message", a line each: ::error of what failed, ::warning
// of what is inconclusive, and ::notice with the count of those left out. `workspace`, absolute:
// files below it are named from there, as GitHub wants them; others as they are. `folder`: what
// relative files are relative to. Empty text where there is nothing to say.
std::string github_annotations(const TestReport& report, const std::string& workspace,
                               const std::string& folder);

// A heading, a table with one line a group, the first failures with how to see them again.
std::string github_summary(const TestReport& report);

// Of a workflow command: what follows the second "::", and the value of a property.
std::string command_data(std::string_view text);
std::string command_property(std::string_view text);

}  // namespace lockstep
