#include "sim/tools/explore/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "scenarios/json/json_text.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/report/terminal.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json scenario_json(const ExploredScenario& one) {
  Json result = as_json(one.result);
  result.erase("libraries");
  return {
      {"name", one.name},       {"label", one.label},      {"file", one.file},
      {"reducer", one.reducer}, {"again", one.again},      {"expects_finding", one.expects_finding},
      {"verdict", one.verdict}, {"met", or_null(one.met)}, {"result", std::move(result)}};
}

}  // namespace

Json as_json(const ExploreDocument& document) {
  Json scenarios = Json::array();
  for (const ExploredScenario& one : document.scenarios) scenarios.push_back(scenario_json(one));
  return with_head({{"machine", as_json(document.machine)},
                    {"libraries", as_json(document.libraries)},
                    {"verdict", document.verdict},
                    {"exit_code", document.exit_code},
                    {"duration_ms", document.duration_ms},
                    {"spec", as_json(document.spec)},
                    {"scenarios", std::move(scenarios)}});
}

namespace {

constexpr double kMsPerMinute = 60'000;

int64_t per_minute(const ExploreResult& result) {
  if (result.duration_ms == 0) return 0;
  return static_cast<int64_t>(kMsPerMinute * static_cast<double>(result.explored) /
                              static_cast<double>(result.duration_ms));
}

bool is_complete(const ExploreDocument& document, const ExploreResult& result) {
  if (!result.broken.empty() || result.signal != 0) return false;
  if (document.spec.replay) return result.reproduced == kReplays;
  return result.exhausted || result.explored >= document.spec.schedules;
}

std::string explore_table(const ExploreDocument& document, const Style& style) {
  Table table;
  table.column("scenario");
  table.column("reducer");
  for (const char* header : {"ranks", "steps", "schedules", "distinct", "decisions", "a minute"})
    table.column(header, Table::Align::right);
  table.column("reference");
  table.column("findings", Table::Align::right);
  table.column("verdict");
  for (const ExploredScenario& one : document.scenarios) {
    const ExploreResult& result = one.result;
    table.row(
        {one.name + (one.label.empty() ? "" : " " + one.label), one.reducer,
         std::to_string(result.world_size), std::to_string(result.steps), grouped(result.explored),
         grouped(result.distinct), tenths(result.decisions), grouped(per_minute(result)),
         result.reference, std::to_string(result.findings.size()), to_word(one.verdict)},
        one.met == true ? Verdict::pass : one.verdict);
  }
  return table.text(style, "verdict");
}

std::string acts_text(const SmallestCase& smallest) {
  Table table;
  for (const char* header : {"", "step", "rank"}) table.column(header, Table::Align::right);
  table.column("what it does");
  int64_t number = 0, before = 0;
  for (const ScheduledAct& act : smallest.acts) {
    ++number;
    // What comes before the first step is seldom what is wrong.
    if (smallest.failure.step > 0 && act.step == 0) {
      ++before;
      continue;
    }
    table.row({std::to_string(number), std::to_string(act.step), std::to_string(act.rank),
               act.operation});
  }
  std::string text;
  if (before > 0)
    text = fmt::format("    {} {} of construction left out\n", before, plural(before, "act"));
  std::string lines = table.text(Style(false));
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    text += "    " + lines.substr(at, end - at) + "\n";
    at = end == std::string::npos ? lines.size() : end + 1;
  }
  return text;
}

std::string parameters_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string finding_text(const ExploreDocument& document, const ExploredScenario& scenario,
                         const ExploreFinding& finding, const Style& style) {
  const ScheduleFailure& failure = finding.failure;
  const SmallestCase& smallest = finding.smallest;
  std::string text = fmt::format(
      "\n{}  {}  {} in schedule {}{}{}\n", style.verdict(Verdict::fail), scenario.name,
      failure.kind, grouped(finding.schedule),
      finding.seed ? fmt::format(", seed {}", *finding.seed) : "",
      finding.count > 1 ? fmt::format(", and in {} others", grouped(finding.count - 1)) : "");
  text += fmt::format("  where     {}step {}: {}\n",
                      failure.rank < 0 ? "" : fmt::format("rank {}, ", failure.rank), failure.step,
                      failure.what);
  text +=
      fmt::format("  smallest  {} {}, {} ranks, {} {} ({}), {} {}\n", smallest.steps,
                  plural(smallest.steps, "step"), smallest.world_size, smallest.parameters.size(),
                  plural(static_cast<int64_t>(smallest.parameters.size()), "parameter"),
                  parameters_text(smallest.parameters), smallest.preemptions,
                  plural(smallest.preemptions, "preemption"));
  if (smallest.failure.what != failure.what)
    text += fmt::format("            there rank {}, step {}: {}\n", smallest.failure.rank,
                        smallest.failure.step, smallest.failure.what);
  text += acts_text(smallest);
  if (document.spec.replay)
    text += fmt::format("  replayed  {} of {} the same\n", scenario.result.reproduced, kReplays);
  const std::string seed = finding.seed ? fmt::format(" --replay {}", *finding.seed) : "";
  return text + fmt::format("  again     {}{}\n", scenario.again, seed);
}

}  // namespace

void conclude(ExploreDocument* document) {
  bool unmet = false, undecided = false;
  for (ExploredScenario& one : document->scenarios) {
    const ExploreResult& result = one.result;
    const bool complete = is_complete(*document, result);
    one.verdict = !result.findings.empty() ? Verdict::fail
                  : complete               ? Verdict::pass
                                           : Verdict::inconclusive;
    if (!result.broken.empty()) one.verdict = Verdict::inconclusive;
    one.met.reset();
    if (one.verdict != Verdict::inconclusive)
      one.met = (one.verdict == Verdict::fail) == one.expects_finding;
    unmet = unmet || one.met == false;
    undecided = undecided || !one.met;
    if (result.signal != 0) document->signal = result.signal;
  }
  document->verdict = unmet                                ? Verdict::fail
                      : undecided || document->signal != 0 ? Verdict::inconclusive
                                                           : Verdict::pass;
  document->exit_code =
      document->signal != 0 ? 128 + document->signal : exit_code_of(document->verdict);
}

std::string explore_answer(const ExploreDocument& document) {
  int64_t schedules = 0, findings = 0, expected = 0, broken = 0;
  for (const ExploredScenario& one : document.scenarios) {
    schedules += one.result.explored;
    findings += static_cast<int64_t>(one.result.findings.size());
    if (one.expects_finding) expected += static_cast<int64_t>(one.result.findings.size());
    broken += !one.result.broken.empty();
  }
  const auto scenarios = static_cast<int64_t>(document.scenarios.size());
  std::string text =
      fmt::format("{}: {} {} of {} {}, {} {}", to_word(document.verdict), grouped(schedules),
                  plural(schedules, "schedule"), scenarios, plural(scenarios, "scenario"), findings,
                  plural(findings, "finding"));
  if (expected > 0) text += fmt::format(" ({} expected)", expected);
  if (broken > 0) text += fmt::format("; {} broke down", broken);
  if (document.signal != 0) text += fmt::format("; interrupted by signal {}", document.signal);
  if (document.exit_code != 0) text += fmt::format("; exit {}", document.exit_code);
  return text + "\n";
}

std::string explore_text(const ExploreDocument& document, const Style& style) {
  ResultDocument head;
  head.seed = document.spec.seed;
  head.machine = document.machine;
  head.libraries = document.libraries;
  std::string text = head_line(head) + "\n\n" + explore_table(document, style);
  for (const ExploredScenario& one : document.scenarios) {
    for (const ExploreFinding& finding : one.result.findings)
      text += finding_text(document, one, finding, style);
    if (one.met == false && one.result.findings.empty())
      text += fmt::format("\n{}  {}  a finding is expected, and there is none\n  again     {}\n",
                          style.verdict(Verdict::fail), one.name, one.again);
    if (!one.result.broken.empty())
      text += fmt::format("\n{}  {}  broke down: {}\n", style.verdict(Verdict::inconclusive),
                          one.name, one.result.broken);
  }
  return text + "\n" + explore_answer(document);
}

}  // namespace lockstep
