#pragma once

#include <string>
#include <string_view>

#include "sim/report/ci/test_report.h"

namespace lockstep {

// The report as JUnit XML, as Jenkins, GitLab and the reporters for GitHub read it: a test suite a
// group, <failure> of what failed, <error> of what is inconclusive (it is neither pass nor fail),
// <skipped> of what was not run to its end or is excused by a baseline. Valid UTF-8 and well-formed
// whatever the strings hold.
std::string junit_text(const TestReport& report);

// For text and for attribute values in double quotes: markup escaped, ends of lines kept as they
// are. What XML 1.0 cannot hold (control characters, bytes that are not UTF-8, U+FFFE, U+FFFF)
// becomes U+FFFD.
std::string xml_text(std::string_view text);
std::string xml_attribute(std::string_view text);

}  // namespace lockstep
