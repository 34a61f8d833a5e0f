#include "sim/report/metrics_table.h"

#include <fmt/format.h>

#include "sim/report/table.h"

namespace lockstep {
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
    text += fmt::format("; a step takes {} ms, {} if all ranks were alike: slowdown {:.2f}",
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

}  // namespace lockstep
