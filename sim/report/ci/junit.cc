#include "sim/report/ci/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

using Result = TestCase::Result;

std::string properties_text(const Properties& properties, const char* indent) {
  if (properties.empty()) return "";
  std::string text = fmt::format("{}<properties>\n", indent);
  for (const auto& [name, value] : properties)
    text += fmt::format("{}  <property name=\"{}\" value=\"{}\"/>\n", indent, xml_attribute(name),
                        xml_attribute(value));
  return text + fmt::format("{}</properties>\n", indent);
}

std::string outcome_text(const TestCase& one) {
  const std::string message = xml_attribute(one.message);
  if (one.result == Result::skipped)
    return fmt::format("      <skipped message=\"{}\"/>\n", message);
  const char* element = one.result == Result::failed ? "failure" : "error";
  return fmt::format("      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n", element,
                     xml_attribute(one.kind), message, xml_text(one.text));
}

std::string case_text(const TestCase& one) {
  std::string text = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"",
                                 xml_attribute(one.group), xml_attribute(one.name), one.time_s);
  if (!one.file.empty()) text += fmt::format(" file=\"{}\"", xml_attribute(one.file));
  if (!one.file.empty() && one.line > 0) text += fmt::format(" line=\"{}\"", one.line);
  const std::string properties = properties_text(one.properties, "      ");
  if (one.result == Result::passed && properties.empty()) return text + "/>\n";
  text += ">\n" + properties;
  if (one.result != Result::passed) text += outcome_text(one);
  return text + "    </testcase>\n";
}

std::string counts_text(const std::vector<TestCase>& cases, double time_s) {
  const CaseCounts counts = counts_of(cases);
  return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"",
                     counts.all, counts.failed, counts.inconclusive, counts.skipped, time_s);
}

std::string suite_text(const TestReport& report, const std::vector<TestCase>& cases) {
  double time_s = 0;
  for (const TestCase& one : cases) time_s += one.time_s;
  std::string text = fmt::format("  <testsuite name=\"{}\" {}>\n",
                                 xml_attribute(cases.front().group), counts_text(cases, time_s));
  text += properties_text(report.properties, "    ");
  for (const TestCase& one : cases) text += case_text(one);
  return text + "  </testsuite>\n";
}

}  // namespace

std::string junit_text(const TestReport& report) {
  std::string text =
      fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\" {}>\n",
                  xml_attribute(report.name), counts_text(report.cases, report.time_s));
  std::vector<TestCase> group;
  for (const TestCase& one : report.cases) {
    if (!group.empty() && group.front().group != one.group) {
      text += suite_text(report, group);
      group.clear();
    }
    group.push_back(one);
  }
  if (!group.empty()) text += suite_text(report, group);
  return text + "</testsuites>\n";
}

}  // namespace lockstep
