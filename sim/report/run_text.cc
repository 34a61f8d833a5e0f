#include "sim/report/run_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/judge/lanes.h"
#include "sim/report/terminal.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

std::string met_word(const RunResult& run) {
  if (run.undecided == Undecided::busy_machine) return "inconclusive: busy machine";
  if (!run.met) return "undecided";
  return *run.met ? "met" : "not met";
}

Verdict color_of(const RunResult& run) {
  if (!run.met) return Verdict::inconclusive;
  return *run.met ? Verdict::pass : Verdict::fail;
}

// "completed, as expected: 10 steps in 0.93 s, final weights 3f2a..."
std::string what_happened(const RunResult& run, const Style& style) {
  const std::string how = run.met == true ? ", as expected" : run.met ? ", not as expected" : "";
  const std::string head = style.verdict(color_of(run), to_word(run.outcome) + how);
  if (run.failure) return fmt::format("{}: {}\n", head, run.failure->message);
  std::string text =
      fmt::format("{}: {} {} in {:.2f} s", head, grouped(run.steps), plural(run.steps, "step"),
                  static_cast<double>(run.duration_ms) * 1e-3);
  for (const LaneResult& lane : run.lanes)
    text += fmt::format(", {} {}", to_word(lane.lane), to_word(lane.verdict));
  return text + "\n";
}

std::string because_of_it(const Failure& failure) {
  if (failure.secondary.empty()) return "";
  return fmt::format("  as a result  {} {} failed as well\n",
                     plural(static_cast<int64_t>(failure.secondary.size()), "rank"),
                     list_of(failure.secondary));
}

}  // namespace

std::string run_text(const RunResult& run, const Style& style) {
  std::string text = run.name + (run.label.empty() ? "" : "  " + run.label) + "\n";
  if (run.metrics && !run.metrics->steps.empty()) text += metrics_table(run, style);
  text += what_happened(run, style);
  if (run.failure) text += because_of_it(*run.failure);
  if (run.first_divergence)
    text += fmt::format("  cause  {}: {}\n", run.first_divergence->cause,
                        run.first_divergence->explanation);
  text += fmt::format("  expected: {}: {}\n", run.expected, met_word(run));
  for (const std::string& unmet : run.unmet) text += fmt::format("  unmet  {}\n", unmet);
  if (run.met == true) return text;
  text += again_lines(run);
  if (!run.run_dir.empty()) text += fmt::format("  evidence  {}\n", short_path(run.run_dir));
  return text;
}

namespace {

std::string ulp_text(uint64_t ulp) {
  if (ulp == UINT64_MAX) return "not finite";
  if (ulp > INT64_MAX) return scientific(static_cast<double>(ulp)) + " ulp";  // of two signs
  return grouped(static_cast<int64_t>(ulp)) + " ulp";
}

std::string values_of(const Divergence& d) {
  if (!d.run_value || !d.golden_value) return "";
  const std::string run = digits_of(*d.run_value), golden = digits_of(*d.golden_value);
  const size_t width = std::max(run.size(), golden.size());
  const std::string reference = d.lane == Lane::replica ? "rank 0" : "golden";
  return fmt::format("      run     {:<{}}  {}\n      {}  {:<{}}  {}      {}; {} of {} {} {}{}\n",
                     run, width, d.run_bits, reference, golden, width, d.golden_bits,
                     ulp_text(d.ulp), grouped(d.differing), grouped(d.numel),
                     plural(d.numel, "element"), d.differing == 1 ? "differs" : "differ",
                     d.differing > 1 ? ", at most " + ulp_text(d.max_ulp) : "");
}

std::string failure_lines(const Failure& f) {
  std::string text = fmt::format("  failure  {}: {}\n", f.kind, f.message);
  if (!f.cause.empty()) text += fmt::format("  cause  {}\n", f.cause);
  if (!f.last_event.empty()) text += fmt::format("  last event  {}\n", f.last_event);
  if (!f.secondary.empty())
    text +=
        fmt::format("  as a result  {} {} failed as well\n",
                    plural(static_cast<int64_t>(f.secondary.size()), "rank"), list_of(f.secondary));
  if (!f.stack.empty()) text += "  its stack then\n";
  for (const std::string& frame : f.stack) text += fmt::format("      {}\n", frame);
  if (!f.log_tail.empty()) text += "  last lines of its log\n";
  for (const std::string& line : f.log_tail) text += fmt::format("      {}\n", line);
  return text;
}

std::string lane_lines(const RunResult& run) {
  std::string text;
  for (const LaneResult& lane : run.lanes) {
    if (lane.verdict != LaneVerdict::pass)
      text += fmt::format("  lane {}  {}: {}\n", to_word(lane.lane), to_word(lane.verdict),
                          lane.reason);
  }
  return text;
}

std::string failed_lanes(const RunResult& run) {
  std::string text;
  for (const LaneResult& lane : run.lanes)
    if (lane.verdict == LaneVerdict::fail) text += fmt::format(" {}", to_word(lane.lane));
  if (text.empty()) return "";
  const bool one = text.find(' ', 1) == std::string::npos;
  return (one ? "  lane" : "  lanes") + text;
}

}  // namespace

std::string divergence_place(const Divergence& d) {
  std::string text = d.step == 0 ? "before step 1" : fmt::format("step {}", d.step);
  if (!d.tensor.empty())
    text += fmt::format(", {} of {}", d.state_kind ? in_words(*d.state_kind) : "", d.tensor);
  else if (d.state_kind)
    text += fmt::format(", {}", in_words(*d.state_kind));
  if (d.bucket) text += fmt::format(", bucket {}", *d.bucket);
  if (!d.element.empty()) text += fmt::format(", element [{}]", fmt::join(d.element, ", "));
  if (!d.ranks.empty())
    text += fmt::format(", seen on {} {}", plural(static_cast<int64_t>(d.ranks.size()), "rank"),
                        list_of(d.ranks));
  return text;
}

std::string again_lines(const RunResult& run) {
  std::string text = fmt::format("  again  {}\n", run.again);
  if (!run.told_command.empty())
    text += fmt::format("  it says that it was run with: {}\n",
                        nlohmann::json(printable(run.told_command)).dump());
  return text;
}

std::string failure_text(const RunResult& run, const Style& style) {
  std::string text = style.verdict(run.verdict) + "  " + run.name;
  if (!run.label.empty()) text += "  " + run.label;
  text += failed_lanes(run) + "\n";
  if (run.baseline == "regression") text += "  regression  as expected in the baseline\n";
  for (const std::string& unmet : run.unmet) text += fmt::format("  unmet  {}\n", unmet);
  if (run.first_divergence) {
    text += fmt::format("  first difference  {}\n", divergence_place(*run.first_divergence));
    text += values_of(*run.first_divergence);
  }
  for (const std::string& reason : run.check_reasons) text += fmt::format("  check  {}\n", reason);
  text += lane_lines(run);
  if (run.failure) text += failure_lines(*run.failure);
  if (run.first_divergence)
    text += fmt::format("  cause  {}: {}\n", run.first_divergence->cause,
                        run.first_divergence->explanation);
  text += again_lines(run);
  if (!run.run_dir.empty()) text += fmt::format("  evidence  {}\n", short_path(run.run_dir));
  return text;
}

namespace {

std::string rows(const Metrics& metrics, const Style& style) {
  Table table;
  for (const char* header : {"rank", "ready ms", "arrival ms", "wait ms", "transfer ms",
                             "exposed ms", "overlap", "blame ms"})
    table.column(header, Table::Align::right);
  for (size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    const RankNumbers& mean = metrics.ranks[rank].mean;
    const auto& overlap = metrics.ranks[rank].overlap;
    table.row({std::to_string(rank), tenths(mean.ready_ms), tenths(mean.arrival_ms),
               tenths(mean.wait_ms), tenths(mean.transfer_ms), tenths(mean.exposed_ms),
               overlap ? fmt::format("{:.0f} %", *overlap * 100) : "-",
               mean.blame_ms < 0.05 ? "-" : tenths(mean.blame_ms)});
  }
  return table.text(style);
}

std::string steps_line(const Metrics& metrics) {
  const auto count = static_cast<int64_t>(metrics.steps.size());
  std::string text = fmt::format("means of {} {}", grouped(count), plural(count, "step"));
  if (metrics.slowdown)
    text += fmt::format("; a step takes {} ms, {} if all ranks were equally fast: slowdown {:.2f}",
                        tenths(*metrics.step_ms), tenths(*metrics.ideal_ms), *metrics.slowdown);
  return text + "\n";
}

std::string left_out_line(const Metrics& metrics) {
  if (metrics.left_out.empty()) return "";
  const auto count = static_cast<int64_t>(metrics.left_out.size());
  const auto& last = metrics.left_out.back();
  return fmt::format("nothing can be said of {} other {}, as of step {}: {}\n", grouped(count),
                     plural(count, "step"), last.step, last.why);
}

}  // namespace

std::string metrics_table(const RunResult& run, const Style& style) {
  if (!run.metrics) return "";
  const Metrics& metrics = *run.metrics;
  std::string text;
  if (metrics.steps.empty())
    text = "no step to measure: the first one warms up\n";
  else
    text = rows(metrics, style) + steps_line(metrics);
  text += left_out_line(metrics);
  if (metrics.clock_uncertainty_ms > 0)
    text +=
        fmt::format("clocks of the hosts agree within {:.3f} ms\n", metrics.clock_uncertainty_ms);
  if (run.straggler) text += run.straggler->text + "\n";
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

// "columns": [{"of": "...", "losses": [[epoch, step, loss], ...]}], counted from 1.
std::vector<PublishedLosses> published_columns(const Json& document) {
  std::vector<PublishedLosses> columns;
  for (const Json& column : document.at("columns")) {
    columns.push_back({column.at("of").get<std::string>(), {}});
    for (const Json& row : column.at("losses"))
      columns.back().losses.push_back(
          {whole_number(row.at(0)), whole_number(row.at(1)), row.at(2).get<double>()});
  }
  return columns;
}

std::string printed(const PublishedLosses& column, int64_t epoch, int64_t step) {
  for (const PublishedLosses::Printed& row : column.losses)
    if (row.epoch == epoch && row.step == step) return fmt::format("{:.3f}", row.loss);
  return "";
}

// The first step of each epoch is known where the scenario reports it, which it always does.
int64_t first_step(const std::vector<LossRow>& rows, int64_t epoch) {
  for (const LossRow& row : rows)
    if (row.epoch == epoch) return row.step;
  return 1;
}

}  // namespace

Expected<std::vector<PublishedLosses>> load_published_losses(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  const auto document = parse_foreign_json(text.value(), path, "published losses");
  if (!document) return document.errors();
  try {
    return published_columns(document.value());
  } catch (const nlohmann::json::exception& error) {
    return file_error(path, fmt::format("are no published losses: {}", error.what()));
  }
}

std::string losses_text(const RunResult& run) {
  std::vector<PublishedLosses> published;
  if (!run.published_losses.empty())
    if (auto loaded = load_published_losses(run.published_losses))
      published = std::move(loaded.value());
  Table table;
  for (const char* header : {"epoch", "step", "loss of the batch", "of rank 0's part"})
    table.column(header, Table::Align::right);
  for (const PublishedLosses& column : published)
    table.column("published: " + column.of, Table::Align::right);
  for (const LossRow& row : run.losses) {
    const int64_t step = row.step - first_step(run.losses, row.epoch) + 1;
    std::vector<std::string> cells = {std::to_string(row.epoch), std::to_string(step),
                                      fmt::format("{:.3f}", row.all_ranks),
                                      fmt::format("{:.3f}", row.rank_0)};
    for (const PublishedLosses& column : published)
      cells.push_back(printed(column, row.epoch, step));
    table.row(cells);
  }
  return table.text(Style(false));
}

}  // namespace lockstep
