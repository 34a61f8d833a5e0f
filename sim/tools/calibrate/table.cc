#include "sim/tools/calibrate/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "scenarios/base/text.h"
#include "sim/calibrate/published_table.h"
#include "sim/calibrate/row_fit.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/simulate.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/cli/simulation_progress.h"
#include "sim/cli/verbs.h"
#include "sim/report/document.h"
#include "sim/report/text_style.h"
#include "sim/tools/calibrate/machine_file.h"

namespace lockstep {
namespace {

double error_of(const PredictedRow& row) { return row.ms / row.row.ms - 1; }

std::string text_of_rows(const RowFit& fit) {
  Table table;
  for (const char* header :
       {"ranks", "cap MiB", "published ms", "predicted ms", "from .. to", "error"})
    table.column(header, Table::Align::right);
  table.column("");
  for (const PredictedRow& row : fit.rows)
    table.row({grouped(row.row.ranks), row.row.cap_mb ? fmt::format("{}", *row.row.cap_mb) : "-",
               fmt::format("{:.2f}", row.row.ms), fmt::format("{:.2f}", row.ms),
               fmt::format("{:.2f} .. {:.2f}", row.low, row.high),
               fmt::format("{:+.1f} %", error_of(row) * 100), row.row.fitted ? "fitted" : ""});
  return table.text(style_of("never", STDOUT_FILENO));
}

using Caps = std::vector<const PredictedRow*>;

// Which cap is fastest at one world size, by virtual time and as published.
std::string text_of_caps(int64_t ranks, const Caps& caps, double error) {
  const auto least = [&](auto ms) {
    return *std::min_element(caps.begin(), caps.end(),
                             [&](const auto* a, const auto* b) { return ms(*a) < ms(*b); });
  };
  const PredictedRow& best = *least([](const PredictedRow& row) { return row.ms; });
  const PredictedRow& published = *least([](const PredictedRow& row) { return row.row.ms; });
  std::vector<std::string> alike;
  for (const PredictedRow* row : caps)
    if (row != &best && row->ms / best.ms - 1 <= error)
      alike.push_back(fmt::format("{}", *row->row.cap_mb));
  std::string text = fmt::format("at {} {}: bucket_cap_mb {} is fastest in virtual time", ranks,
                                 plural(ranks, "rank"), *best.row.cap_mb);
  for (size_t i = 0; i < alike.size(); ++i) text += (i == 0 ? "; cannot tell " : ", ") + alike[i];
  if (!alike.empty()) text += " from it";
  if (&best == &published) return text + "; as published, too\n";
  return text + fmt::format("; published is {}, which takes {:.1f} % less than {}\n",
                            *published.row.cap_mb, (1 - published.row.ms / best.row.ms) * 100,
                            *best.row.cap_mb);
}

std::string text_of_caps(const RowFit& fit) {
  std::map<std::tuple<int64_t, int64_t, double>, Caps> worlds;
  for (const PredictedRow& row : fit.rows)
    if (row.row.cap_mb)
      worlds[{row.row.ranks, row.row.passes.value_or(0), row.row.samples.value_or(0)}].push_back(
          &row);
  const Accuracy& accuracy = *fit.machine.accuracy;
  std::string text;
  for (const auto& [place, caps] : worlds)
    if (caps.size() > 1)
      text += text_of_caps(std::get<0>(place), caps,
                           accuracy.cap_error.value_or(2 * accuracy.step_error));
  return text;
}

// Each of them once: what a bucket costs and how far ranks are spread is varied in all alike.
std::string text_of_explanations(const std::vector<RowExplanation>& explanations) {
  double bucket_us = 0, spread = 0;
  for (const RowExplanation& one : explanations) {
    bucket_us = std::max(bucket_us, one.bucket_us);
    spread = std::max(spread, one.spread);
  }
  const RowExplanation& first = explanations.front();
  std::string text = "the fitted row alone cannot distinguish these:\n";
  for (const RowExplanation& one : explanations)
    if (one.bucket_us == first.bucket_us && one.spread == first.spread)
      text += "  " + to_text(one) + "\n";
  if (bucket_us > first.bucket_us)
    text += fmt::format("  each of them with a bucket that costs compute {:.0f} us\n", bucket_us);
  if (spread > first.spread)
    text += fmt::format(
        "  each of them with ranks whose speeds spread by {:.1f} %, so that all wait for the "
        "slowest\n",
        spread * 100);
  return text;
}

std::string text_of_fit(const RowFit& fit, const PublishedTable& table) {
  std::string text = "published: " + printable(table.source) + "\n\n" + text_of_rows(fit) + "\n";
  text += text_of_caps(fit);
  text += text_of_explanations(fit.explanations);
  for (const InputError& warning : fit.warnings) text += to_text(warning, "warning") + "\n";
  for (const std::string& note : fit.notes) text += "note: " + note + "\n";
  if (fit.emulated)
    text += fmt::format(
        "compute as fitted: --set /compute/forward_ms={:.6g} --set /compute/backward_ms={:.6g}\n",
        fit.forward_ms, fit.backward_ms);
  return text;
}

// Of the rows that nothing was fitted to.
std::string answer_of(const RowFit& fit) {
  double sum = 0, largest = 0;
  int64_t rows = 0, inside = 0;
  for (const PredictedRow& row : fit.rows) {
    if (row.row.fitted) continue;
    ++rows;
    sum += std::fabs(error_of(row));
    largest = std::max(largest, std::fabs(error_of(row)));
    if (row.row.ms >= row.low && row.row.ms <= row.high) ++inside;
  }
  if (rows == 0) return "fitted: 1 row; there is no other row to compare with";
  return fmt::format(
      "fitted: 1 row; compared: {} {}, mean error {:.1f} %, largest {:.1f} %, {} within their "
      "intervals",
      rows, plural(rows, "other"), sum / static_cast<double>(rows) * 100, largest * 100, inside);
}

Expected<RunPlan> plan_of(const TableOptions& options) {
  Selection selection;
  selection.paths = options.scenarios;
  selection.sets = options.sets;
  selection.simulated.only = true;
  const auto files = select(selection);
  if (!files) return files.errors();
  std::vector<RunPlan> plans;
  for (const SelectedFile& file : files.value())
    plans.insert(plans.end(), file.plans.begin(), file.plans.end());
  if (plans.size() == 1) return std::move(plans.front());
  return option_error(fmt::format("--table is of one run, but {} are selected", plans.size()),
                      "one scenario, whose matrix --set pins");
}

void append(const InputErrors& more, InputErrors* errors) {
  errors->insert(errors->end(), more.begin(), more.end());
}

}  // namespace

int calibrate_on_table(const TableOptions& options) {
  SimulateVerb links;
  links.machine = options.machine;
  const auto plan = plan_of(options);
  const auto machine = machine_of(links);
  const auto table = read_published_table(options.table);
  InputErrors errors;
  if (!plan) append(plan.errors(), &errors);
  if (!machine) append(machine.errors(), &errors);
  if (!table) append(table.errors(), &errors);
  if (!errors.empty()) return bad_input(errors);
  auto progress = std::make_unique<SimulationProgress>(options.quiet);
  auto fit = fit_row(plan.value(), machine.value(), table.value(),
                     [&](const std::string& what) { progress->next(what); });
  progress.reset();  // takes its line away
  if (!fit) return bad_input(fit.errors());
  RowFit& fitted = fit.value();
  fitted.machine.fitted_on = {table.value().source};
  if (options.machine.empty())
    fitted.notes.emplace_back(
        "the links are not given (--machine) and taken to be Gloo's on a loopback, 1,500 MB/s");
  std::string answer = answer_of(fitted);
  if (const auto error =
          write_machine(options.out, to_text(fitted.machine, nlohmann::ordered_json())))
    return bad_input({*error});
  if (!options.out.empty()) answer += "; wrote " + options.out;
  const std::string told = options.quiet ? "" : text_of_fit(fitted, table.value());
  return print_result(told + answer + "\n", kExitPass);
}

}  // namespace lockstep
