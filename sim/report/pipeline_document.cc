#include "sim/report/pipeline_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/report/table.h"
#include "sim/report/version.h"

namespace lockstep {
namespace {

// As many workers as are interesting to look at; all of them are in --json.
constexpr size_t kShown = 5;

std::string factor(double value) { return fmt::format("{:.4f}", value); }

std::string factor(const std::optional<double>& value) { return value ? factor(*value) : "-"; }

std::string numbered(const char* header, const std::vector<double>& slowdowns, const Style& style) {
  Table table;
  table.column(header, Table::Align::right);
  table.column("slowdown", Table::Align::right);
  for (size_t i = 0; i < slowdowns.size(); ++i)
    table.row({std::to_string(i), factor(slowdowns[i])});
  return table.text(style);
}

std::string workers_table(const PipelineSlowdown& slowdown, const Style& style) {
  Table table;
  for (const char* header : {"worst workers: stage", "data-parallel rank", "slowdown"})
    table.column(header, Table::Align::right);
  for (size_t i = 0; i < std::min(slowdown.workers.size(), std::max(kShown, slowdown.worst)); ++i)
    table.row({std::to_string(slowdown.workers[i].stage),
               std::to_string(slowdown.workers[i].dp_rank), factor(slowdown.workers[i].slowdown)});
  return table.text(style);
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f} %", std::round(*share * 100) + 0.0) : "nothing";
}

std::string answer(const PipelineSlowdown& slowdown) {
  const auto worst = static_cast<int64_t>(slowdown.worst);
  const auto& first = slowdown.workers.front();
  const std::string who = worst == 1
                              ? fmt::format("the worst worker (stage {}, data-parallel rank {})",
                                            first.stage, first.dp_rank)
                              : fmt::format("the worst {} workers", grouped(worst));
  return fmt::format(
      "slowdown S {}; of the time lost, {} goes with {}, M_W {}, and {} with the "
      "last stage, M_S {}\n",
      factor(slowdown.slowdown), percent(slowdown.by_worst_workers), who,
      factor(slowdown.by_worst_workers), percent(slowdown.by_last_stage),
      factor(slowdown.by_last_stage));
}

}  // namespace

std::string pipeline_text(const PipelineDocument& document, const Style& style) {
  const PipelineSlowdown& slowdown = document.slowdown;
  return fmt::format("{}  {} {}  {} data-parallel {} x {} {}  {} operations\n\n", document.file,
                     grouped(document.steps), plural(document.steps, "step"),
                     grouped(document.dp_ranks), plural(document.dp_ranks, "rank"),
                     grouped(document.stages), plural(document.stages, "stage"),
                     grouped(document.ops)) +
         numbered("stage", slowdown.stages, style) + "\n" +
         numbered("data-parallel rank", slowdown.dp_ranks, style) + "\n" +
         workers_table(slowdown, style) + "\n" +
         fmt::format(
             "a step takes {} ms, {} if all operations of a kind took equally "
             "long\n",
             tenths(slowdown.step_ms), tenths(slowdown.ideal_ms)) +
         answer(slowdown);
}

nlohmann::ordered_json as_json(const PipelineDocument& document) {
  return {{"schema_version", 1},         {"lockstep_version", lockstep_version()},
          {"commit", lockstep_commit()}, {"exit_code", 0},
          {"file", document.file},       {"steps", document.steps},
          {"ops", document.ops},         {"pipeline", as_json(document.slowdown)}};
}

}  // namespace lockstep
