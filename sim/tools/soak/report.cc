#include "sim/tools/soak/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string hours_text(double seconds) { return fmt::format("{:.3f}", seconds / 3600); }

std::string rate_text(const SoakTotal& total) {
  const double rate = rate_below_95(total);
  return rate < 0 ? "-" : fmt::format("{:.2g}", rate);
}

Table totals_table(const std::vector<SoakSlice>& slices) {
  Table table;
  for (const char* header : {"commit", "LibTorch", "work"}) table.column(header);
  for (const char* header :
       {"slices", "runs", "failures", "undecided", "broken", "rate below (95 %)", "hours"})
    table.column(header, Table::Align::right);
  for (const SoakTotal& one : totals(slices))
    table.row({one.commit, one.libtorch, row_of(one.work).word, grouped(one.slices),
               grouped(one.runs), grouped(one.failures), grouped(one.undecided),
               grouped(one.broken), rate_text(one), hours_text(one.duration_s)});
  return table;
}

// A line of each failure and of each slice that broke down.
std::vector<std::string> failure_lines(const std::vector<SoakSlice>& slices) {
  std::vector<std::string> lines;
  for (const SoakSlice& slice : slices) {
    const char* work = row_of(slice.work).word;
    for (const SoakFailure& failure : slice.counts.failures)
      lines.push_back(
          fmt::format("{} {} ({}): {}", work, failure.name, slice.commit, failure.again));
    if (!slice.broken.empty())
      lines.push_back(fmt::format("{} of seeds {} to {} ({}) broke down: it {}", work, slice.seed,
                                  slice.seed + static_cast<uint64_t>(slice.seeds) - 1, slice.commit,
                                  slice.broken));
  }
  return lines;
}

SoakTotal sum_of_judged(const SoakReport& report) { return sum_of(totals(report.judged)); }

}  // namespace

Verdict verdict_of(const SoakReport& report) {
  const SoakTotal sum = sum_of_judged(report);
  if (sum.failures > 0) return Verdict::fail;
  const bool certain = sum.runs > 0 && sum.undecided == 0 && sum.broken == 0;
  return certain && report.stopped.empty() ? Verdict::pass : Verdict::inconclusive;
}

int exit_code_of(const SoakReport& report) {
  return report.signal != 0 ? 128 + report.signal : exit_code_of(verdict_of(report));
}

std::string soak_answer(const SoakReport& report) {
  const SoakTotal sum = sum_of_judged(report);
  std::string text =
      fmt::format("{}: {} {} in {} h, {} {}, {} undecided", to_word(verdict_of(report)),
                  grouped(sum.runs), plural(sum.runs, "run"), hours_text(sum.duration_s),
                  grouped(sum.failures), plural(sum.failures, "failure"), grouped(sum.undecided));
  if (sum.broken > 0)
    text += fmt::format(", {} {} broke down", sum.broken, plural(sum.broken, "slice"));
  if (!report.stopped.empty()) text += "; stopped: " + report.stopped;
  if (report.signal != 0) text += fmt::format("; interrupted by signal {}", report.signal);
  return text;
}

std::string soak_text(const SoakReport& report, const Style& style) {
  std::string text = totals_table(report.slices).text(style);
  const std::vector<std::string> lines = failure_lines(report.slices);
  if (!lines.empty()) text += "\n";
  for (const std::string& line : lines) text += printable(line) + "\n";
  return text;
}

std::string soak_markdown(const SoakReport& report) {
  std::string text = "# Soak\n\n" + soak_answer(report) + "\n\n" +
                     totals_table(report.slices).markdown() + "\nWhat each run must show:\n\n";
  for (const SoakWorkRow& row : soak_works())
    text += fmt::format("* {}: {}{}\n", row.word, row.promise,
                        row.takes_time ? " (it measures: the machine has a part in it)" : "");
  const std::vector<std::string> lines = failure_lines(report.slices);
  if (!lines.empty()) text += "\n## Failures\n\n";
  for (const std::string& line : lines) text += "* " + markdown_text(line) + "\n";
  return text;
}

Json as_json(const SoakReport& report) {
  Json all = Json::array(), failures = Json::array();
  for (const SoakTotal& one : totals(report.slices)) {
    const double rate = rate_below_95(one);
    all.push_back({{"commit", one.commit},
                   {"libtorch", one.libtorch},
                   {"work", row_of(one.work).word},
                   {"slices", one.slices},
                   {"runs", one.runs},
                   {"failures", one.failures},
                   {"undecided", one.undecided},
                   {"broken", one.broken},
                   {"rate_below_95", rate < 0 ? Json() : Json(rate)},
                   {"duration_s", one.duration_s}});
  }
  for (const SoakSlice& slice : report.slices)
    for (const SoakFailure& one : slice.counts.failures)
      failures.push_back({{"work", row_of(slice.work).word},
                          {"commit", slice.commit},
                          {"name", one.name},
                          {"again", one.again}});
  return with_head({{"verdict", to_word(verdict_of(report))},
                    {"exit_code", exit_code_of(report)},
                    {"totals", std::move(all)},
                    {"failures", std::move(failures)}});
}

}  // namespace lockstep
