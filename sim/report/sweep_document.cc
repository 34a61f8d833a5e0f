#include "sim/report/sweep_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/report/document.h"
#include "sim/report/terminal.h"
#include "sim/report/text_style.h"

namespace lockstep {

std::optional<double> prediction_error(const SweepDocument& document, size_t line) {
  if (!document.simulated || !document.simulated->step_ms[line]) return std::nullopt;
  return *document.simulated->step_ms[line] / document.lines[line].step_ms.value - 1;
}

PredictionError prediction_error(const SweepDocument& document) {
  PredictionError error;
  for (size_t i = 0; i < document.lines.size(); ++i) {
    const auto one = prediction_error(document, i);
    if (!one || label_of(document.lines[i].cell) == document.simulated->calibrated_on) continue;
    ++error.lines;
    error.mean += std::fabs(*one);
    error.largest = std::max(error.largest, std::fabs(*one));
  }
  if (error.lines > 0) error.mean /= static_cast<double>(error.lines);
  return error;
}

std::string why_not_predicted(const SweepDocument& document, size_t line) {
  if (!document.simulated) return document.not_simulated;
  const auto& reasons = document.simulated->why_not;
  return line < reasons.size() ? reasons[line] : "";
}

namespace {

constexpr const char* kNothing = "-";

std::string caps_of(const Cell& cell) {
  if (!cell.cap_mb) return kNothing;
  std::string text = fmt::format("{}", *cell.cap_mb);
  for (const double other : cell.same_caps_mb) text += fmt::format("={}", other);
  return text;
}

std::vector<std::string> cells_of(const SweepDocument& document, const CellResult& line) {
  std::vector<std::string> cells = {std::to_string(line.cell.world_size), line.cell.reducer};
  for (const auto& [pointer, value] : line.cell.varied) cells.push_back(value);
  const bool any = line.buckets > 0;
  const std::vector<std::string> numbers = {
      caps_of(line.cell),
      any ? std::to_string(line.buckets) : kNothing,
      any ? fmt::format("{:.2f}", line.tail_mb) : kNothing,
      fmt::format("{:.1f}", line.step_ms.value),
      interval_text(line, 1),
      fmt::format("{:.1f}", line.backward_ms.value),
      fmt::format("{:.1f}", line.exposed_ms.value),
      line.overlap ? fmt::format("{:.0f} %", line.overlap->value * 100) : kNothing,
      fmt::format("{:.1f}", line.skew_ms.value)};
  cells.insert(cells.end(), numbers.begin(), numbers.end());
  if (document.simulated) {
    const auto place = static_cast<size_t>(&line - document.lines.data());
    const auto error = prediction_error(document, place);
    cells.push_back(error ? fmt::format("{:.1f}", *document.simulated->step_ms[place]) : kNothing);
    cells.push_back(error ? fmt::format("{:+.1f}", *error * 100) : kNothing);
  }
  if (document.reference) {
    const auto published = published_for(*document.reference, line);
    cells.push_back(published ? fmt::format("{:.1f}", *published) : kNothing);
  }
  const bool compared = line.not_compared < static_cast<int64_t>(line.runs.size());
  cells.push_back(compared ? std::to_string(line.wrong) : kNothing);
  return cells;
}

Table table_of(const SweepDocument& document) {
  Table table;
  const auto number = [&](const std::string& header) { table.column(header, Table::Align::right); };
  number("ranks");
  table.column("reducer");
  if (!document.lines.empty())
    for (const auto& [pointer, value] : document.lines.front().cell.varied)
      number(pointer.substr(pointer.rfind('/') + 1));
  for (const char* header : {"cap MiB", "buckets", "tail MB", "step ms", "95 % interval",
                             "backward ms", "exposed ms", "overlap", "skew ms"})
    number(header);
  if (document.simulated) number("predicted ms");
  if (document.simulated) number("error %");
  if (document.reference) number("published");
  number("wrong");
  for (const CellResult& line : document.lines) table.row(cells_of(document, line));
  return table;
}

std::string predictions_text(const SweepDocument& document) {
  std::string text;
  for (const auto& one : document.predictions) {
    text += fmt::format("tail model: {}: bucket_cap_mb {} is best, backward {:.1f} ms", one.group,
                        one.cap_mb, one.backward_ms);
    for (const CellResult& line : document.lines)
      if (group_of(line.cell) == one.group && line.cell.cap_mb == one.cap_mb)
        text += fmt::format("; measured {:.1f}", line.backward_ms.value);
    text += "\n";
  }
  return text;
}

// What several combinations have in common is said once.
std::string not_predicted_text(const SweepDocument& document) {
  std::vector<std::pair<std::string, std::vector<std::string>>> labels;  // by reason
  for (size_t i = 0; i < document.lines.size(); ++i) {
    const std::string why = why_not_predicted(document, i);
    if (why.empty()) continue;
    auto known = std::find_if(labels.begin(), labels.end(),
                              [&](const auto& one) { return one.first == why; });
    if (known == labels.end()) known = labels.insert(labels.end(), {why, {}});
    known->second.push_back(label_of(document.lines[i].cell));
  }
  std::string text;
  for (const auto& [why, of] : labels) {
    const auto others = static_cast<int64_t>(of.size()) - 1;
    text += fmt::format(
        "not predicted: {}{}: {}\n", of.front(),
        others == 0 ? "" : fmt::format(" and {} {}", others, plural(others, "other")), why);
  }
  return text;
}

std::string simulated_text(const SweepDocument& document) {
  if (!document.simulated) return not_predicted_text(document);
  const PredictionError error = prediction_error(document);
  std::string text = fmt::format("predicted: step times in virtual time, on a machine fitted to {}",
                                 document.simulated->calibrated_on);
  if (error.lines > 0)
    text += fmt::format("; {} {} off by {:.1f} % on average, {:.1f} % at most", error.lines,
                        plural(error.lines, "other"), error.mean * 100, error.largest * 100);
  return text + "\n" + not_predicted_text(document);
}

std::string contrasts_text(const SweepDocument& document) {
  std::string text;
  for (const Contrast& one : document.caps) {
    const std::string group = group_of(document.lines[one.cell].cell);
    text += document.caps.size() > 1 ? group + ": " + one.text + "\n" : one.text + "\n";
  }
  for (const Contrast& one : document.reducers) text += one.text + "\n";
  return text;
}

std::string reference_text(const SweepDocument& document) {
  if (!document.reference) return "";
  std::string text =
      fmt::format("published: {} of {}\n", document.reference->metric, document.reference->source);
  for (const CurveAgreement& one : agreements(*document.reference, document.lines))
    text += fmt::format(
        "  {}: mean error {:.2f} %, largest {:.2f} %, correlation {:.3f}; with the bytes of the "
        "tail bucket {:.3f} here, {:.3f} published\n",
        one.group, one.mean_error * 100, one.largest_error * 100, one.correlation, one.tail_ours,
        one.tail_published);
  return text;
}

std::string judgements_text(const SweepDocument& document, const Style& style) {
  std::string text;
  const auto add = [&](const std::string& what, const Judgement& judgement) {
    text += fmt::format("{}: {}\n", what, style.verdict(judgement.verdict));
    for (const std::string& line : judgement.lines) text += "  " + line + "\n";
  };
  for (const auto& [threshold, judgement] : document.thresholds)
    add("threshold " + threshold.text(), judgement);
  if (document.baseline) add("baseline", *document.baseline);
  return text;
}

std::string watch_text(const SweepDocument& document) {
  const MachineVerdict& watch = document.watch;
  return fmt::format(
      "machine {}: other work ran beside {} of {} {}, {} repeated; {:.1f} ms of work took {:.1f}\n",
      watch.verdict, watch.contaminated, watch.runs, plural(watch.runs, "run"), watch.repeated,
      watch.quickest_ms, watch.median_ms);
}

// Is the metric of a line one number, without an interval?
bool is_exact(const std::string& metric) {
  return metric == "tail_mb" || metric == "buckets" || metric == "wrong";
}

}  // namespace

void conclude(SweepDocument* document) {
  document->wrong = 0;
  for (const CellResult& line : document->lines) document->wrong += line.wrong;
  Verdict verdict = Verdict::pass;
  const bool undecided = document->signal != 0 || !document->broken.empty() ||
                         document->lines.empty() ||
                         (document->watch.verdict == "busy" && !document->allow_busy);
  if (undecided) verdict = Verdict::inconclusive;
  // On a busy machine a bound that is broken may be the machine's doing.
  for (const auto& [threshold, judgement] : document->thresholds)
    if (!undecided) verdict = worse_verdict(verdict, judgement.verdict);
  if (document->baseline && !undecided)
    verdict = worse_verdict(verdict, document->baseline->verdict);
  if (document->wrong > 0) verdict = Verdict::fail;
  document->verdict = verdict;
  document->exit_code = document->signal != 0 ? 128 + document->signal : exit_code_of(verdict);
}

std::string sweep_answer(const SweepDocument& document) {
  const auto lines = static_cast<int64_t>(document.lines.size());
  std::string text = fmt::format("{}: {} {} of {} {}, wrong: {}", to_word(document.verdict),
                                 grouped(document.runs), plural(document.runs, "run"), lines,
                                 plural(lines, "combination"), document.wrong);
  if (document.signal != 0) text += fmt::format("; interrupted by signal {}", document.signal);
  if (!document.broken.empty()) text += "; a run broke down";
  if (document.watch.verdict == "busy")
    text += document.allow_busy ? "; on a busy machine" : "; the machine was busy";
  return text + (document.exit_code == 0 ? "" : fmt::format("; exit {}", document.exit_code)) +
         "\n";
}

std::string sweep_text(const SweepDocument& document, const Style& style) {
  ResultDocument head;
  head.machine = document.machine;
  head.libraries = document.libraries;
  head.seed = document.seed;
  std::string text = head_line(head);
  text += fmt::format("{}: medians of {} {}, each of {} steps after {}\n\n", document.scenario,
                      document.rounds, plural(document.rounds, "round"), document.steps,
                      document.warmup);
  text += table_of(document).text(style) + "\n" + predictions_text(document) +
          simulated_text(document) + contrasts_text(document) + reference_text(document) +
          judgements_text(document, style);
  for (const std::string& why : document.broken) text += "broke down: " + why + "\n";
  return text + watch_text(document) + style.verdict(document.verdict, sweep_answer(document));
}

std::string sweep_markdown(const SweepDocument& document) {
  return table_of(document).markdown() + "\n" + contrasts_text(document) + "\n" +
         sweep_answer(document);
}

std::string sweep_csv(const SweepDocument& document) {
  std::string text = "label,world_size,reducer,bucket_cap_mb,rounds";
  for (const std::string& name : metric_names()) {
    text += "," + name;
    if (!is_exact(name)) text += fmt::format(",{0}_low,{0}_high", name);
  }
  text += "\n";
  for (const CellResult& line : document.lines) {
    const Cell& cell = line.cell;
    text += fmt::format("{},{},{},{},{}", label_of(cell), cell.world_size, cell.reducer,
                        cell.cap_mb ? fmt::format("{}", *cell.cap_mb) : "", line.runs.size());
    for (const std::string& name : metric_names()) {
      const auto value = metric_of(line, name);
      if (is_exact(name))
        text += fmt::format(",{}", value->value);
      else if (value && has_interval(line))
        text += fmt::format(",{},{},{}", value->value, value->low, value->high);
      else
        text += fmt::format(",{},,", value ? fmt::format("{}", value->value) : "");
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
