#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/tools/program/scenario_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of(const ProgramScenarioRun& run) {
  const std::string label = label_of(run.scenario->axes);
  return printable(run.scenario->name + (label.empty() ? "" : " " + label));
}

std::string why_undecided(const ProgramScenarioRun& run) {
  switch (run.judged.undecided) {
    case Undecided::interrupted:
      return "interrupted";
    case Undecided::busy_machine:
      return fmt::format("the machine was busy; {}", fmt::join(run.judged.unmet, "; "));
    case Undecided::inconclusive:
    case Undecided::decided:
      break;
  }
  return fmt::format("expected {}, and the run is inconclusive", run.judged.expected);
}

std::string said_of(const ProgramScenarioRun& run) {
  if (!run.judged.met) return "undecided: " + why_undecided(run);
  if (*run.judged.met) return "as expected: " + run.judged.expected;
  return fmt::format("not as expected: {}", fmt::join(run.judged.unmet, "; "));
}

std::string body_of(const ProgramScenarioRun& run) {
  return run.verified ? program_body(*run.verified) : program_run_body(run.ran->result);
}

int64_t count(const ProgramScenarioResult& result, std::optional<bool> met) {
  return std::count_if(result.runs.begin(), result.runs.end(),
                       [&](const ProgramScenarioRun& run) { return run.judged.met == met; });
}

std::string answer(const ProgramScenarioResult& result) {
  const auto runs = static_cast<int64_t>(result.runs.size());
  const int64_t unmet = count(result, false), undecided = count(result, std::nullopt);
  std::string text =
      fmt::format("{}: {} {}", to_word(verdict_of(result)), runs, plural(runs, "run"));
  if (unmet > 0) text += fmt::format(", {} not as expected", unmet);
  if (undecided > 0) text += fmt::format(", {} undecided", undecided);
  if (unmet + undecided == 0) text += " as expected";
  if (result.not_run > 0) text += fmt::format(", {} not run", result.not_run);
  const int code = exit_code_of(result);
  return text + (code == 0 ? "" : fmt::format("; exit {}", code));
}

Json run_json(const ProgramScenarioRun& run) {
  const ProgramScenario& scenario = *run.scenario;
  Json axes = Json::object();
  for (const auto& [pointer, value] : scenario.axes) axes[pointer] = json_or_discarded(value);
  return {{"name", scenario.name},
          {"file", run.file},
          {"label", label_of(scenario.axes)},
          {"set", std::move(axes)},
          {"directory", scenario.program.start.directory},
          {"as", scenario.is_run ? "run" : "verify"},
          {"verdict", to_word(run.judged.verdict)},
          {"expected", run.judged.expected},
          {"met", or_null(run.judged.met)},
          {"undecided", run.judged.met ? Json() : Json(to_word(run.judged.undecided))},
          {"unmet", run.judged.unmet},
          {"duration_ms", static_cast<int64_t>(run.duration_s * 1e3)},
          {"result", run.verified ? as_json(*run.verified) : as_json(run.ran->result)}};
}

TestCase case_of(const ProgramScenarioRun& run) {
  TestCase one;
  one.group = run.scenario->name;
  one.name = label_of(run.scenario->axes);
  if (one.name.empty()) one.name = one.group;
  one.time_s = run.duration_s;
  one.file = run.file;
  if (run.judged.met == true) return one;
  one.result = run.judged.met ? TestCase::Result::failed : TestCase::Result::inconclusive;
  one.kind = run.judged.met ? "unmet" : to_word(run.judged.undecided);
  one.message = said_of(run);
  one.text = said_of(run) + "\n" + body_of(run);
  return one;
}

}  // namespace

Verdict verdict_of(const ProgramScenarioResult& result) {
  if (count(result, false) > 0) return Verdict::fail;
  return count(result, std::nullopt) > 0 ? Verdict::inconclusive : Verdict::pass;
}

int exit_code_of(const ProgramScenarioResult& result) {
  for (const ProgramScenarioRun& run : result.runs)
    if (signal_of(run) != 0) return 128 + signal_of(run);
  return exit_code_of(verdict_of(result));
}

std::string program_scenarios_text(const ProgramScenarioResult& result, bool quiet) {
  std::string text;
  for (const ProgramScenarioRun& run : result.runs) {
    if (quiet && run.judged.met == true) continue;
    text += fmt::format("{}: {}\n", name_of(run), printable(said_of(run)));
    if (!quiet) text += body_of(run) + "\n";
  }
  return text + answer(result) + "\n";
}

Json as_json(const ProgramScenarioResult& result) {
  Json runs = Json::array();
  for (const ProgramScenarioRun& run : result.runs) runs.push_back(run_json(run));
  return with_head({{"verdict", to_word(verdict_of(result))},
                    {"exit_code", exit_code_of(result)},
                    {"runs", std::move(runs)},
                    {"not_run", result.not_run},
                    {"duration_ms", static_cast<int64_t>(result.duration_s * 1e3)}});
}

TestReport test_report(const ProgramScenarioResult& result) {
  TestReport report;
  report.name = "lockstep " + result.verb;
  report.answer = answer(result);
  report.time_s = result.duration_s;
  for (const ProgramScenarioRun& run : result.runs) report.cases.push_back(case_of(run));
  say_inconclusive(verdict_of(result), &report);
  return report;
}

}  // namespace lockstep
