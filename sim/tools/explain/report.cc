#include "sim/tools/explain/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

const char* next_step(const FlightFinding& found) {
  switch (found.kind) {
    case FlightClass::never_entered:
      return "check what the process does instead: its stack (py-spy dump), its log, its host";
    case FlightClass::held:
      return "check its GPU and links (dmesg, nvidia-smi): its peers had everything they needed";
    case FlightClass::late:
      return "check what the process did before: its data loader, its checkpoint, its host";
    case FlightClass::mismatch:
      return "check where its program takes another branch or has different shapes";
    case FlightClass::order:
      return "check what decides the order: dicts, sets, threads and branches of each process";
    case FlightClass::ahead:
      return "check how many batches each rank has (Join, drop_last), and what only some ranks "
             "skip";
    case FlightClass::not_started:
      return "check what its GPU does before: a kernel that does not end (cuda-gdb, dmesg), its "
             "stack (py-spy dump)";
    case FlightClass::died:
      return found.victims.empty()
                 ? "fix this first"
                 : "fix this first: all that the victims report is a lost peer or "
                   "a time-out";
    case FlightClass::silent:
      return "look for what ended or stopped it: dmesg, the scheduler's and the launcher's log";
    case FlightClass::straggler:
      return "check what it does in addition, or more slowly: its host, its share of the data";
    case FlightClass::nothing:
      return "";
  }
  return "";
}

std::string what_happened(const FlightFinding& found) {
  const bool of_calls = found.kind == FlightClass::mismatch || found.kind == FlightClass::order ||
                        found.kind == FlightClass::ahead;
  if (found.guilty.size() > 1 && !of_calls) return "are to blame, for the reasons above";
  const std::string collective = fmt::format(
      "{} {} of group {} ({})", found.operation.empty() ? "collective" : found.operation,
      found.sequence, found.group, found.description);
  switch (found.kind) {
    case FlightClass::never_entered:
      return (found.operation == "send" || found.operation == "recv" ? "never called its side of "
                                                                     : "never entered ") +
             collective;
    case FlightClass::held:
      return "did not complete " + collective + ", which peers completed";
    case FlightClass::late:
      return fmt::format("came {:.0f} ms late to {}, after the time-out",
                         found.lateness_ms.value_or(0), collective);
    case FlightClass::mismatch:
      return fmt::format("did not call what the others called as collective {} of group {} ({})",
                         found.sequence, found.group, found.description);
    case FlightClass::order:
      return fmt::format(
          "made the same calls as the others in another order, from collective {} of group {} ({}) "
          "on",
          found.sequence, found.group, found.description);
    case FlightClass::ahead:
      return "went on to the next step, while the others called " + collective;
    case FlightClass::not_started:
      return "called " + collective + ", which its GPU never began";
    case FlightClass::died:
      return "failed on its own";
    case FlightClass::silent:
      return "left no dump and reported nothing, while all the others lost it";
    case FlightClass::straggler:
      return fmt::format("is a straggler: in each step the others wait {:.1f} ms for it, {:.2f}x",
                         found.lateness_ms.value_or(0), found.slowdown.value_or(1));
    case FlightClass::nothing:
      return "";
  }
  return "";
}

const char* candidates_word(size_t count) {
  return count == 0 ? "" : count == 1 ? "; candidate: " : "; candidates: ";
}

// "3 dumps and 2 logs"
std::string counted(const SourcesRead& read) {
  const auto traces = static_cast<int64_t>(read.traces.size());
  std::string text;
  const auto add = [&](int64_t count, const char* word) {
    if (count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : " and ", count, plural(count, word));
  };
  add(read.dumps, "dump");
  add(read.logs, "log");
  add(traces, "trace");
  return text.empty() ? "0 dumps" : text;
}

// A row for each rank, of a job of many for some.
std::string traces_text(const std::vector<TraceShare>& traces) {
  constexpr size_t kMostRows = 16;
  const auto number = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.1f}", *value) : std::string("-");
  };
  const auto row = [](auto... cells) {
    return fmt::format("  {:>6} {:>5} {:>9} {:>10} {:>9} {:>10} {:>8} {:>10}\n", cells...);
  };
  std::string text = row("rank", "steps", "step ms", "compute ms", "comm ms", "exposed ms",
                         "overlap", "waiting ms");
  for (size_t i = 0; i < std::min(traces.size(), kMostRows); ++i) {
    const TraceShare& one = traces[i];
    const std::string overlap = number(one.overlap_percent) + (one.overlap_percent ? "%" : "");
    text +=
        row(one.rank, one.steps, number(one.step_ms), number(one.compute_ms),
            number(one.communication_ms), number(one.exposed_ms), overlap, number(one.waiting_ms));
  }
  if (traces.size() > kMostRows)
    text += fmt::format("  and {} more ranks, in --json\n", traces.size() - kMostRows);
  return text;
}

nlohmann::ordered_json traces_json(const std::vector<TraceShare>& traces) {
  auto all = nlohmann::ordered_json::array();
  for (const TraceShare& one : traces)
    all.push_back({{"rank", one.rank},
                   {"file", one.file},
                   {"device", one.on_gpu ? "gpu" : "cpu"},
                   {"steps", one.steps},
                   {"step_ms", or_null(one.step_ms)},
                   {"compute_ms", one.compute_ms},
                   {"communication_ms", one.communication_ms},
                   {"exposed_ms", one.exposed_ms},
                   {"overlap_percent", or_null(one.overlap_percent)},
                   {"waiting_ms", or_null(one.waiting_ms)},
                   {"collectives", one.collectives}});
  return all;
}

}  // namespace

int explain_code(const FlightFinding& found) {
  if (!found.decided) return kExitInconclusive;
  return found.guilty.empty() ? kExitPass : kExitFail;
}

std::string explain_text(const FlightFinding& found, const SourcesRead& counts) {
  std::string text = counts.traces.empty() ? "" : traces_text(counts.traces);
  for (const std::string& line : found.evidence) text += "  " + printable(line) + "\n";
  for (const std::string& line : found.missing) text += "  missing: " + printable(line) + "\n";
  if (!found.victims.empty() && (!found.guilty.empty() || !found.decided))
    text += "  victims: " + rank_list(found.victims) + "\n";
  if (!found.decided)
    text +=
        fmt::format("undecided{}{}; exit {}\n", candidates_word(found.candidates.size()),
                    found.candidates.empty() ? "" : rank_list(found.candidates), kExitInconclusive);
  else if (found.guilty.empty())
    text += fmt::format(
        "nothing to explain: in {} {}\n", counted(counts),
        counts.traces.empty() ? "no rank waits for another" : "no rank is late in most steps");
  else
    text += fmt::format("{} {}; {}; exit {}\n", rank_list(found.guilty),
                        printable(what_happened(found)), next_step(found), kExitFail);
  return text;
}

nlohmann::ordered_json explain_json(const FlightFinding& found, const SourcesRead& counts,
                                    const std::string& scenario) {
  return {{"schema_version", 1},
          {"verdict", !found.decided         ? "undecided"
                      : found.guilty.empty() ? "nothing"
                                             : "explained"},
          {"dumps", counts.dumps},
          {"logs", counts.logs},
          {"traces", traces_json(counts.traces)},
          {"guilty", found.guilty},
          {"candidates", found.candidates},
          {"victims", found.victims},
          {"class", name_of(found.kind)},
          {"group", or_null(found.group)},
          {"group_description", or_null(found.description)},
          {"collective", or_null(found.operation)},
          {"sequence", found.sequence < 0 ? nlohmann::ordered_json(nullptr)
                                          : nlohmann::ordered_json(found.sequence)},
          {"lateness_ms", or_null(found.lateness_ms)},
          {"slowdown", or_null(found.slowdown)},
          {"evidence", found.evidence},
          {"missing", found.missing},
          {"scenario", or_null(scenario)},
          {"exit_code", explain_code(found)}};
}

TestReport explain_report(const FlightFinding& found, const SourcesRead& counts,
                          const std::string& path) {
  TestCase made;
  made.group = "explain";
  made.name = path;
  made.result = !found.decided         ? TestCase::Result::inconclusive
                : found.guilty.empty() ? TestCase::Result::passed
                                       : TestCase::Result::failed;
  made.kind = name_of(found.kind);
  made.text = explain_text(found, counts);
  made.message = made.text.substr(made.text.rfind('\n', made.text.size() - 2) + 1);
  if (!made.message.empty()) made.message.pop_back();
  made.file = path;
  TestReport report;
  report.name = "lockstep explain";
  report.answer = made.message;
  report.cases.push_back(std::move(made));
  return report;
}

}  // namespace lockstep
