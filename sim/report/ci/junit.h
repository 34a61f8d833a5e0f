#pragma once

#include <string>

#include "sim/report/ci/test_report.h"

namespace lockstep {

// The report as JUnit XML, as Jenkins, GitLab and the reporters for GitHub read it: a test suite a
// group, <failure> of what failed, <error> of what is inconclusive (it is neither pass nor fail),
// <skipped> of what was not run to its end or is excused by a baseline. Valid UTF-8 and well-formed
// whatever the strings hold.
std::string junit_text(const TestReport& report);

}  // namespace lockstep
