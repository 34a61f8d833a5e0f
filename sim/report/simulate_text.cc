#include <fmt/format.h>

#include "sim/report/run_text.h"
#include "sim/report/simulate_document.h"
#include "sim/report/table.h"

namespace lockstep {
namespace {

constexpr const char* kNoValue = "-";

std::string ms(double value) { return fmt::format("{:.2f}", value); }

bool any(const SimulateDocument& document, bool (*has)(const SimulatedLine&)) {
  for (const SimulatedLine& line : document.lines)
    if (has(line)) return true;
  return false;
}

bool has_label(const SimulatedLine& line) { return !line.label.empty(); }
bool has_efficiency(const SimulatedLine& line) { return line.efficiency.has_value(); }
bool has_straggler(const SimulatedLine& line) { return line.straggler_ms.has_value(); }
bool has_chance(const SimulatedLine& line) { return line.timeout_chance.has_value(); }

std::string chance_text(const Chance& chance) {
  return fmt::format("{:.3g} .. {:.3g}", chance.low * 100, chance.high * 100);
}

class Rows {
 public:
  explicit Rows(const SimulateDocument& document) : document_(document) {
    table_.column("scenario");
    if (any(document, has_label)) table_.column("run");
    for (const char* header : {"ranks", "cap MiB", "buckets", "tail MB", "step ms", "p95 ms",
                               "backward ms", "exposed ms", "overlap", "skew ms"})
      table_.column(header, Table::Align::right);
    if (any(document, has_efficiency)) table_.column("efficiency", Table::Align::right);
    if (any(document, has_straggler)) table_.column("straggler ms", Table::Align::right);
    if (any(document, has_chance)) table_.column("time-outs % of steps", Table::Align::right);
    table_.column("engine");
  }

  std::string text(const Style& style) {
    for (const SimulatedLine& line : document_.lines) table_.row(cells(line));
    return table_.text(style);
  }

 private:
  std::vector<std::string> cells(const SimulatedLine& line) const {
    const SimulatedNumbers& numbers = line.numbers;
    std::vector<std::string> cells = {line.scenario};
    if (any(document_, has_label)) cells.push_back(line.label);
    cells.push_back(grouped(line.ranks));
    cells.push_back(line.cap_mb ? fmt::format("{}", *line.cap_mb) : kNoValue);
    cells.push_back(std::to_string(line.buckets));
    cells.push_back(fmt::format("{:.2f}", line.tail_mb));
    if (numbers.steps == 0) {
      cells.resize(cells.size() + 6, kNoValue);
    } else {
      for (const double value :
           {numbers.step_ms, numbers.p95_ms, numbers.backward_ms, numbers.exposed_ms})
        cells.push_back(ms(value));
      cells.push_back(numbers.overlap ? fmt::format("{:.0f} %", *numbers.overlap * 100) : kNoValue);
      cells.push_back(numbers.skew_ms ? ms(*numbers.skew_ms) : kNoValue);
    }
    const auto optional = [&](const std::optional<double>& value, const char* form) {
      cells.push_back(value ? fmt::format(fmt::runtime(form), *value) : kNoValue);
    };
    if (any(document_, has_efficiency)) optional(line.efficiency, "{:.3f}");
    if (any(document_, has_straggler)) optional(line.straggler_ms, "{:.2f}");
    if (any(document_, has_chance))
      cells.push_back(line.timeout_chance ? chance_text(*line.timeout_chance) : kNoValue);
    cells.push_back(line.engine);
    return cells;
  }

  const SimulateDocument& document_;
  Table table_;
};

// A row for each run on hosts that fail, in hours.
std::string over_days_text(const SimulateDocument& document, const Style& style) {
  Table table;
  for (const char* header :
       {"ranks", "hosts", "MTBF h", "checkpoint every s", "failures", "work h", "elapsed h",
        "95 % interval", "formula h", "lost h", "checkpoints h", "restarts h", "goodput"})
    table.column(header, Table::Align::right);
  bool any = false;
  const auto hours = [](double ns) { return fmt::format("{:.1f}", ns * 1e-9 / 3600); };
  for (const SimulatedLine& line : document.lines) {
    if (!line.over_days) continue;
    any = true;
    const LongRun& run = line.over_days->run;
    const LongRunNumbers& numbers = line.over_days->numbers;
    table.row({grouped(line.ranks), grouped(run.hosts), hours(static_cast<double>(run.mtbf_ns)),
               fmt::format("{:.0f}", static_cast<double>(run.interval_ns) * 1e-9),
               fmt::format("{:.1f}", numbers.failures), hours(static_cast<double>(run.work_ns)),
               hours(numbers.elapsed_ns), hours(numbers.low_ns) + " .. " + hours(numbers.high_ns),
               hours(line.over_days->expected_ns), hours(numbers.lost_ns),
               hours(numbers.checkpoints_ns), hours(numbers.restarts_ns),
               fmt::format("{:.1f} %", numbers.goodput * 100)});
  }
  return any ? table.text(style) + "\n" : "";
}

std::string notes_text(const SimulateDocument& document) {
  std::string text, last;
  for (const SimulatedLine& line : document.lines)
    for (const std::string& note : line.notes) {
      const std::string said = fmt::format("note: {}: {}\n", line.scenario, note);
      if (said != last) text += said;
      last = said;
    }
  return text;
}

std::string seconds(int64_t ns) { return fmt::format("{:.3f} s", static_cast<double>(ns) * 1e-9); }

// Why, and whose fault it is.
std::string why_text(const SimulatedFailure& failure) {
  const std::string who = failure.rank ? fmt::format("rank {}", *failure.rank) : "a rank";
  switch (failure.cause) {
    case EndedBy::death:
      return fmt::format("{} died in {}", who, failure.place);
    case EndedBy::hang:
      return fmt::format("{} never came, out of {}", who, failure.place);
    case EndedBy::lateness:
      return fmt::format("{} came last, out of {}", who, failure.place);
    case EndedBy::short_timeout:
      return fmt::format(
          "its time-out of {} is too short for it: ranks came within {}, and from the last one on "
          "it "
          "takes {}; nobody is to blame",
          seconds(failure.timeout_ns), seconds(failure.apart_ns), seconds(failure.transfer_ns));
  }
  return "";
}

std::string failure_text(const SimulatedLine& line) {
  const SimulatedFailure& failure = *line.failure;
  const std::string when =
      failure.known_ns == kNever ? "never" : fmt::format("at {}", seconds(failure.known_ns));
  const std::string what = failure.averaging    ? "the average of parameters"
                           : failure.bucket < 0 ? "the new buckets"
                                                : fmt::format("bucket {}", failure.bucket);
  const char* how = failure.cause == EndedBy::death ? "failed" : "timed out";
  return fmt::format("failed: {}, {} ranks: in step {} the collective of {} {} {}; {}",
                     line.scenario, grouped(line.ranks), failure.step, what, how, when,
                     why_text(failure));
}

// A single run is told whole; of many, those that are not as expected.
std::string judged_text(const SimulateDocument& document, const Style& style) {
  std::string text;
  for (const SimulatedLine& line : document.lines)
    if (line.judged && (document.lines.size() == 1 || line.judged->met == false))
      text += run_text(*line.judged, style) + "\n";
    else if (line.failure && !line.judged)
      text += failure_text(line) + "\n";
  return text;
}

}  // namespace

std::string to_text(const SimulateDocument& document, const Style& style) {
  std::string text = Rows(document).text(style) + "\n" + over_days_text(document, style);
  text += judged_text(document, style);
  text += notes_text(document);
  text += fmt::format("simulated machine: {}\n", document.simulated);
  if (!document.recommendation.empty()) text += document.recommendation + "\n";
  return text + document.answer + "\n";
}

}  // namespace lockstep
