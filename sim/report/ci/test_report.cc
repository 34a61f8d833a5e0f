#include "sim/report/ci/test_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "sim/report/machine.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

using Result = TestCase::Result;

Result result_of(const RunResult& run) {
  if (run.met == true) return Result::passed;
  if (run.baseline == "known") return Result::skipped;
  return run.met ? Result::failed : Result::inconclusive;
}

std::string failure_kind_of(const RunResult& run) {
  if (run.first_divergence) return run.first_divergence->cause;
  if (run.failure) return run.failure->kind;
  return run.met ? "unmet" : "inconclusive";
}

// Lanes that kept the run from an answer.
std::string undecided_lanes(const RunResult& run) {
  std::vector<std::string> reasons;
  for (const LaneResult& lane : run.lanes)
    if (lane.verdict == LaneVerdict::inconclusive || lane.verdict == LaneVerdict::voided)
      reasons.push_back(
          fmt::format("lane {} is {}: {}", to_word(lane.lane), to_word(lane.verdict), lane.reason));
  return fmt::format("{}", fmt::join(reasons, "; "));
}

// Where it went wrong first, or who is to blame; else what was expected and is not so.
std::string message_of(const RunResult& run) {
  std::string text;
  if (run.first_divergence)
    text = fmt::format("{}: {}: {}", divergence_place(*run.first_divergence),
                       run.first_divergence->cause, run.first_divergence->explanation);
  else if (run.failure)
    text = run.failure->message;
  else if (!run.met)
    text = undecided_lanes(run);
  if (text.empty()) text = fmt::format("{}", fmt::join(run.check_reasons, "; "));
  if (text.empty()) text = fmt::format("{}", fmt::join(run.unmet, "; "));
  if (text.empty())
    text = fmt::format("expected {}, observed {}", run.expected, to_word(run.verdict));
  return run.baseline == "known" ? "known, the baseline has it too: " + text : text;
}

Properties properties_of(const RunResult& run) {
  Properties properties = {{"seed", std::to_string(run.seed)},
                           {"world_size", std::to_string(run.world_size)},
                           {"reducer", run.reducer},
                           {"communicator", run.communicator}};
  if (!run.algorithm.empty()) properties.emplace_back("algorithm", run.algorithm);
  properties.emplace_back("steps", std::to_string(run.steps));
  properties.emplace_back("verdict", to_word(run.verdict));
  properties.emplace_back("expected", run.expected);
  if (run.failure && run.failure->rank)
    properties.emplace_back("primary_rank", std::to_string(*run.failure->rank));
  if (!run.final_hash.empty()) properties.emplace_back("final_hash", run.final_hash);
  if (!run.baseline.empty()) properties.emplace_back("baseline", run.baseline);
  if (!run.again.empty()) properties.emplace_back("again", run.again);
  return properties;
}

TestCase case_of(const RunResult& run) {
  TestCase one;
  one.group = run.name;
  one.name = run.label.empty() ? run.name : run.label;
  one.result = result_of(run);
  one.time_s = static_cast<double>(run.duration_ms) * 1e-3;
  one.properties = properties_of(run);
  one.file = run.file;
  if (one.result == Result::passed) return one;
  one.kind = failure_kind_of(run);
  one.message = message_of(run);
  one.text = failure_text(run, Style(false));
  return one;
}

TestCase case_of(const NotRun& run) {
  TestCase one;
  one.group = run.name;
  one.name = run.label.empty() ? run.name : run.label;
  one.result = Result::skipped;
  one.kind = "not run";
  one.message =
      run.why.empty() ? "not run to its end: the invocation ended before" : "left out: " + run.why;
  one.file = run.file;
  return one;
}

TestCase case_of(const InputError& error, const char* kind) {
  TestCase one;
  one.group = "lockstep";
  one.name = error.file.empty() ? error.message : to_text(error);
  one.result = Result::inconclusive;
  one.kind = kind;
  one.message = error.message;
  if (!error.allowed.empty()) one.message += "; expected " + error.allowed;
  one.text = to_text(error);
  one.file = error.line > 0 ? error.file : "";  // else an option of the command line
  one.line = error.line;
  one.column = error.column;
  return one;
}

// Those of one group together, groups in the order in which they first came.
void gather(std::vector<TestCase>* cases) {
  std::map<std::string, size_t> place;
  for (const TestCase& one : *cases) place.try_emplace(one.group, place.size());
  std::stable_sort(cases->begin(), cases->end(), [&](const TestCase& a, const TestCase& b) {
    return place.at(a.group) < place.at(b.group);
  });
}

}  // namespace

TestReport test_report(const std::string& verb, const ResultDocument& document) {
  TestReport report;
  report.name = "lockstep " + verb;
  report.properties = properties_of(document.machine, document.libraries, document.seed);
  report.time_s = static_cast<double>(document.duration_ms) * 1e-3;
  for (const RunResult& run : document.runs) report.cases.push_back(case_of(run));
  for (const NotRun& run : document.not_run) report.cases.push_back(case_of(run));
  for (const InputError& error : document.errors)
    report.cases.push_back(case_of(error, "environment"));
  gather(&report.cases);
  report.answer = without_end(answer_line(document));
  say_inconclusive(document.verdict, &report);
  return report;
}

TestReport test_report(const InputErrors& errors) {
  TestReport report;
  report.name = "lockstep";
  for (const InputError& error : errors) report.cases.push_back(case_of(error, "bad input"));
  const auto count = static_cast<int64_t>(errors.size());
  report.answer =
      fmt::format("{} {}; nothing was run; exit {}", count, plural(count, "error"), kExitBadInput);
  return report;
}

CaseCounts counts_of(const std::vector<TestCase>& cases) {
  CaseCounts counts;
  for (const TestCase& one : cases) {
    ++counts.all;
    counts.passed += one.result == Result::passed;
    counts.failed += one.result == Result::failed;
    counts.inconclusive += one.result == Result::inconclusive;
    counts.skipped += one.result == Result::skipped;
  }
  return counts;
}

Properties properties_of(const Machine& machine, const Libraries& libraries, uint64_t seed) {
  Properties properties = {{"lockstep", lockstep_version()}, {"commit", lockstep_commit()}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) properties.emplace_back(name, value);
  };
  add("libtorch", libraries.torch);
  add("gloo", libraries.gloo);
  add("blas", libraries.blas);
  add("torch_cpu_capability", libraries.torch_cpu_capability);
  add("blas_cpu_capability", libraries.blas_cpu_capability);
  add("cpu", machine.cpu);
  add("cores", std::to_string(machine.cores));
  add("seed", std::to_string(seed));
  return properties;
}

void say_inconclusive(std::optional<Verdict> verdict, TestReport* report) {
  if (verdict != Verdict::inconclusive || counts_of(report->cases).inconclusive > 0) return;
  TestCase one;
  one.group = report->cases.empty() ? "lockstep" : report->cases.back().group;
  one.name = "verdict";
  one.result = TestCase::Result::inconclusive;
  one.kind = "inconclusive";
  one.message = one.text = report->answer;
  report->cases.push_back(std::move(one));
}

std::string without_end(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// The reports of verbs that measure: a case is a line of their table.
namespace {

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
  one.result = judgement.verdict == Verdict::pass   ? Result::passed
               : judgement.verdict == Verdict::fail ? Result::failed
                                                    : Result::inconclusive;
  if (one.result == Result::passed) return one;
  one.kind = judgement.verdict == Verdict::fail ? "slower" : "inconclusive";
  one.message = judgement.lines.empty() ? to_word(judgement.verdict) : judgement.lines.front();
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

}  // namespace lockstep
