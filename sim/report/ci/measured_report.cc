// The reports of verbs that measure: a case is a line of their table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/report/ci/properties.h"
#include "sim/report/ci/test_report.h"

namespace lockstep {
namespace {

using Result = TestCase::Result;

Properties measured_properties(const SweepDocument& document, const CellResult& line) {
  return {{"seed", std::to_string(document.seed)},
          {"world_size", std::to_string(line.cell.world_size)},
          {"reducer", line.cell.reducer},
          {"communicator", line.cell.plan.scenario.communicator.kind},
          {"rounds", std::to_string(line.runs.size())},
          {"step_ms", fmt::format("{:.3f}", line.step_ms.value)},
          {"step_ms_low", fmt::format("{:.3f}", line.step_ms.low)},
          {"step_ms_high", fmt::format("{:.3f}", line.step_ms.high)}};
}

TestCase measured_case_of(const SweepDocument& document, const CellResult& line) {
  TestCase one;
  one.name = label_of(line.cell);
  one.properties = measured_properties(document, line);
  for (const SweepRun& run : line.runs)
    one.time_s += run.numbers.step_ms * static_cast<double>(document.steps) * 1e-3;
  if (line.wrong == 0) return one;
  one.result = Result::failed;
  one.kind = "wrong";
  one.message = one.text =
      fmt::format("replicas differ in {} of {} runs", line.wrong, line.runs.size());
  return one;
}

TestCase measured_case_of(const std::string& name, const Judgement& judgement) {
  TestCase one;
  one.name = name;
  one.result = judgement.verdict == "pass"   ? Result::passed
               : judgement.verdict == "fail" ? Result::failed
                                             : Result::inconclusive;
  if (one.result == Result::passed) return one;
  one.kind = judgement.verdict == "fail" ? "slower" : "inconclusive";
  one.message = judgement.lines.empty() ? judgement.verdict : judgement.lines.front();
  one.text = fmt::format("{}", fmt::join(judgement.lines, "\n"));
  return one;
}

TestCase undecided(const std::string& name, const std::string& why) {
  TestCase one;
  one.name = name;
  one.result = Result::inconclusive;
  one.kind = "inconclusive";
  one.message = one.text = why;
  return one;
}

}  // namespace

TestReport test_report(const SweepDocument& document) {
  TestReport report;
  report.name = "lockstep sweep";
  report.properties = properties_of(document.machine, document.libraries, document.seed);
  report.time_s = static_cast<double>(document.duration_ms) * 1e-3;
  for (const CellResult& line : document.lines)
    report.cases.push_back(measured_case_of(document, line));
  for (const auto& [threshold, judgement] : document.thresholds)
    report.cases.push_back(measured_case_of("threshold " + threshold.text(), judgement));
  if (document.baseline) report.cases.push_back(measured_case_of("baseline", *document.baseline));
  for (size_t i = 0; i < document.broken.size(); ++i)
    report.cases.push_back(undecided(fmt::format("broken run {}", i + 1), document.broken[i]));
  report.answer = without_end(sweep_answer(document));
  for (TestCase& one : report.cases) {
    one.group = document.scenario;
    one.file = document.file;
  }
  say_inconclusive(document.verdict, &report);
  return report;
}

TestReport test_report(const CollectiveDocument& document) {
  TestReport report;
  report.name = "lockstep collective";
  report.properties = properties_of(document.machine, document.libraries, document.spec.seed);
  report.time_s = static_cast<double>(document.duration_ms) * 1e-3;
  for (const CollectiveRow& row : document.result.rows) {
    const CollectiveGroup& group = document.spec.groups[row.group];
    TestCase one;
    one.group = document.spec.operation;
    one.name = fmt::format("{} {} bytes", group.label(), row.bytes);
    for (const int64_t time_ns : row.times_ns) one.time_s += static_cast<double>(time_ns) * 1e-9;
    one.properties = {{"seed", std::to_string(document.spec.seed)},
                      {"world_size", std::to_string(document.spec.world_size)},
                      {"communicator", group.label()},
                      {"busbw_gb_s", fmt::format("{:.3f}", row.busbw_gb_s)}};
    if (row.wrong > 0) {
      one.result = Result::failed;
      one.kind = "wrong";
      one.message = one.text =
          fmt::format("{} elements have other bits than they must have", row.wrong);
    }
    report.cases.push_back(std::move(one));
  }
  report.answer = without_end(collective_answer(document));
  say_inconclusive(document.verdict, &report);
  return report;
}

}  // namespace lockstep
