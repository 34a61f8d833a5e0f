#include "sim/report/simulate_document.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <set>

#include "scenarios/json/json_text.h"
#include "sim/report/machine.h"
#include "sim/report/run_text.h"
#include "sim/report/svg/figure.h"
#include "sim/report/text_style.h"

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
bool has_error(const SimulatedLine& line) { return line.step_error.has_value(); }
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
    if (any(document, has_error)) table_.column("+- ms", Table::Align::right);
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
    if (any(document_, has_error))
      optional(line.step_error && numbers.steps > 0
                   ? std::optional(*line.step_error * numbers.step_ms)
                   : std::nullopt,
               "{:.2f}");
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
  std::string text;
  std::set<std::string> told;
  for (const SimulatedLine& line : document.lines)
    for (const double cap : line.same_caps_mb)
      text += fmt::format("note: at {} ranks bucket_cap_mb {} gives the buckets of {}\n",
                          grouped(line.ranks), cap, *line.cap_mb);
  for (const SimulatedLine& line : document.lines)
    for (const std::string& note : line.notes) {
      const std::string said = fmt::format("note: {}: {}\n", line.scenario, note);
      if (told.insert(said).second) text += said;
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
          "its time-out of {} is too short: ranks arrived within {}, and after the last arrival it "
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
  if (document.prediction && !any(document, has_error))
    text +=
        "how far these steps may be off is not known: the machine was never compared with runs "
        "(lockstep calibrate)\n";
  for (const CapAdvice& advice : document.advice) text += advice.text + "\n";
  return text + document.answer + "\n";
}

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const SimulatedNumbers& numbers) {
  return {{"steps", numbers.steps},
          {"step_ms", numbers.step_ms},
          {"step_p50_ms", numbers.p50_ms},
          {"step_p95_ms", numbers.p95_ms},
          {"step_p99_ms", numbers.p99_ms},
          {"step_longest_ms", numbers.longest_ms},
          {"backward_ms", numbers.backward_ms},
          {"exposed_ms", numbers.exposed_ms},
          {"comm_ms", numbers.comm_ms},
          {"overlap", or_null(numbers.overlap)},
          {"skew_ms", or_null(numbers.skew_ms)},
          {"total_s", numbers.total_s}};
}

Json json_of(const SimulatedFailure& failure) {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  const bool timed_out =
      failure.cause == EndedBy::lateness || failure.cause == EndedBy::short_timeout;
  Json json = {{"cause", to_word(failure.cause)},
               {"rank", or_null(failure.rank)},
               {"step", failure.step},
               {"place", failure.place},
               {"dead", failure.cause == EndedBy::death},
               {"bucket", failure.bucket}};
  json["timeout_ms"] = timed_out ? Json(ms(failure.timeout_ns)) : Json(nullptr);
  json["apart_ms"] = timed_out ? Json(ms(failure.apart_ns)) : Json(nullptr);
  json["transfer_ms"] = timed_out ? Json(ms(failure.transfer_ns)) : Json(nullptr);
  json["at_ms"] = static_cast<double>(failure.at_ns) * 1e-6;
  json["known_ms"] = failure.known_ns == kNever
                         ? Json(nullptr)
                         : Json(static_cast<double>(failure.known_ns) * 1e-6);
  return json;
}

Json json_of(const SimulatedLine::OverDays& days) {
  constexpr double kHours = 1e-9 / 3600;
  const LongRunNumbers& numbers = days.numbers;
  return {{"work_hours", static_cast<double>(days.run.work_ns) * kHours},
          {"hosts", days.run.hosts},
          {"mtbf_hours", static_cast<double>(days.run.mtbf_ns) * kHours},
          {"checkpoint_s", static_cast<double>(days.run.checkpoint_ns) * 1e-9},
          {"checkpoint_every_s", static_cast<double>(days.run.interval_ns) * 1e-9},
          {"best_interval", days.best_interval},
          {"restart_s", static_cast<double>(days.run.restart_ns) * 1e-9},
          {"runs", numbers.runs},
          {"failures", numbers.failures},
          {"elapsed_hours", numbers.elapsed_ns * kHours},
          {"low_hours", numbers.low_ns * kHours},
          {"high_hours", numbers.high_ns * kHours},
          {"expected_hours", days.expected_ns * kHours},
          {"lost_hours", numbers.lost_ns * kHours},
          {"checkpoint_hours", numbers.checkpoints_ns * kHours},
          {"restart_hours", numbers.restarts_ns * kHours},
          {"goodput", numbers.goodput}};
}

Json json_of(const CapAdvice& advice) {
  return {{"world_size", advice.ranks},
          {"bucket_cap_mb", or_null(advice.cap_mb)},
          {"fastest_mb", advice.best_mb},
          {"alike_mb", advice.alike_mb},
          {"usual_mb", or_null(advice.usual_mb)},
          {"gain", or_null(advice.gain)},
          {"gain_error", or_null(advice.gain_error)},
          {"text", advice.text}};
}

Json json_of(const SimulatedLine& line) {
  Json json = {{"name", line.scenario}, {"label", line.label},     {"world_size", line.ranks},
               {"steps", line.steps},   {"reducer", line.reducer}, {"algorithm", line.algorithm},
               {"engine", line.engine}};
  json["bucket_cap_mb"] = or_null(line.cap_mb);
  json["same_buckets_mb"] = line.same_caps_mb;
  json["buckets"] = line.buckets;
  json["tail_mb"] = line.tail_mb;
  json["numbers"] = line.numbers.steps > 0 ? json_of(line.numbers) : Json(nullptr);
  json["step_error"] = or_null(line.step_error);
  json["efficiency"] = or_null(line.efficiency);
  json["straggler_ms"] = or_null(line.straggler_ms);
  json["timeout_chance"] = line.timeout_chance ? Json{{"value", line.timeout_chance->value},
                                                      {"low", line.timeout_chance->low},
                                                      {"high", line.timeout_chance->high}}
                                               : Json(nullptr);
  json["over_days"] = line.over_days ? json_of(*line.over_days) : Json(nullptr);
  json["failure"] = line.failure ? json_of(*line.failure) : Json(nullptr);
  json["notes"] = line.notes;
  json["judged"] = line.judged ? as_json(*line.judged) : Json(nullptr);
  return json;
}

}  // namespace

nlohmann::ordered_json as_json(const SimulateDocument& document) {
  Json json = {{"format", "lockstep_simulation"}, {"version", 1}, {"seed", document.seed}};
  json["simulated_machine"] = document.simulated;
  json["machine"] = {{"cpu", document.machine.cpu}, {"cores", document.machine.cores}};
  json["elapsed_s"] = document.elapsed_s;
  json["runs"] = Json::array();
  for (const SimulatedLine& line : document.lines) json["runs"].push_back(json_of(line));
  json["recommendations"] = Json::array();
  for (const CapAdvice& advice : document.advice)
    json["recommendations"].push_back(json_of(advice));
  json["exit_code"] = document.exit_code;
  return json;
}

namespace {

constexpr double kWidePrediction = 16;

svg::Point predicted_point(const SimulatedLine& line, double x) {
  svg::Point point;
  point.x = x;
  point.y = line.numbers.step_ms;
  if (line.numbers.p50_ms < line.numbers.p95_ms)
    point.interval = {line.numbers.p50_ms, line.numbers.p95_ms};
  point.note = fmt::format("{} buckets, tail bucket {:.2f} MB, exposed {:.2f} ms", line.buckets,
                           line.tail_mb, line.numbers.exposed_ms);
  return point;
}

std::vector<SimulatedLine> drawn_lines(const SimulateDocument& document) {
  std::vector<SimulatedLine> lines;
  for (const SimulatedLine& line : document.lines)
    if (line.numbers.steps > 0) lines.push_back(line);
  return lines;
}

svg::Curves over_caps(const SimulateDocument& document, const std::vector<SimulatedLine>& lines) {
  svg::Curves chart;
  chart.title = "step time over bucket_cap_mb, in virtual time";
  chart.y.title = "step time (ms)";
  double least = 0, largest = 0;
  std::map<int64_t, size_t> series;
  for (const SimulatedLine& line : lines) {
    if (!line.cap_mb) continue;
    least = least == 0 ? *line.cap_mb : std::min(least, *line.cap_mb);
    largest = std::max(largest, *line.cap_mb);
    const auto place = series.try_emplace(line.ranks, chart.series.size());
    if (place.second) chart.series.push_back({fmt::format("{} ranks", line.ranks), {}});
    chart.series[place.first->second].points.push_back(predicted_point(line, *line.cap_mb));
  }
  chart.x = {"bucket_cap_mb (MiB)",
             largest > kWidePrediction * least ? svg::Scale::log2 : svg::Scale::linear};
  for (const CapAdvice& advice : document.advice) {
    const auto place = series.find(advice.ranks);
    if (!advice.cap_mb || place == series.end()) continue;
    chart.highlights.push_back(
        {place->second, *advice.cap_mb, fmt::format("{} MiB", *advice.cap_mb)});
    chart.highlight_meaning = "predicted best";
  }
  return chart;
}

// One series a cap.
std::vector<svg::ScalingSeries> scaling_of(const std::vector<SimulatedLine>& lines) {
  std::vector<svg::ScalingSeries> series;
  std::map<std::string, size_t> places;
  for (const SimulatedLine& line : lines) {
    const std::string name = line.cap_mb ? fmt::format("cap {} MiB", *line.cap_mb) : line.reducer;
    const auto place = places.try_emplace(name, series.size());
    if (place.second) series.push_back({name, {}});
    series[place.first->second].points.push_back({line.ranks, line.numbers.step_ms});
  }
  return series;
}

}  // namespace

std::string simulate_svg(const SimulateDocument& document) {
  const std::vector<SimulatedLine> lines = drawn_lines(document);
  std::set<double> caps;
  std::set<int64_t> worlds;
  for (const SimulatedLine& line : lines) {
    if (line.cap_mb) caps.insert(*line.cap_mb);
    worlds.insert(line.ranks);
  }
  svg::Figure figure;
  figure.title = lines.empty() ? "nothing was simulated" : lines.front().scenario;
  figure.description = "Step times of a simulated training over bucket caps and world sizes";
  if (caps.size() > 1 || worlds.size() <= 1) figure.charts.emplace_back(over_caps(document, lines));
  if (worlds.size() > 1) {
    const auto series = scaling_of(lines);
    figure.charts.emplace_back(svg::step_times_of(series));
    figure.charts.emplace_back(svg::efficiencies_of(series));
  }
  figure.notes = {"simulated machine: " + document.simulated,
                  fmt::format("lockstep {} ({})  seed {}", lockstep_version(), lockstep_commit(),
                              document.seed)};
  return svg::svg_of(figure);
}

}  // namespace lockstep
