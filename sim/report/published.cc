#include "sim/report/published.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/report/table.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// "columns": [{"of": "...", "losses": [[epoch, step, loss], ...]}], counted from 1.
std::vector<PublishedLosses> published_columns(const Json& document) {
  std::vector<PublishedLosses> columns;
  for (const Json& column : document.at("columns")) {
    columns.push_back({column.at("of").get<std::string>(), {}});
    for (const Json& row : column.at("losses"))
      columns.back().losses.push_back(
          {row.at(0).get<int64_t>(), row.at(1).get<int64_t>(), row.at(2).get<double>()});
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
