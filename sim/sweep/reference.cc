#include "sim/sweep/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/judge/what_if.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

InputError refused_reference(const std::string& path, const std::string& message) {
  return option_error(fmt::format("--reference {}: {}", printable(path), message),
                      "a published sweep as golden/data/pytorch_gloo_sweep.json");
}

Reference reference_of(const Json& document) {
  Reference reference;
  reference.source = document.at("source").get<std::string>();
  reference.what = document.at("what").get<std::string>();
  reference.metric = document.at("metric").get<std::string>();
  for (const Json& one : document.at("series")) {
    Reference::Series& series = reference.series.emplace_back();
    series.of = one.at("of").get<std::string>();
    series.reducers = one.at("reducers").get<std::vector<std::string>>();
    series.world_size = one.at("world_size").get<int64_t>();
    for (const Json& row : one.at("rows"))
      series.rows.emplace_back(row.at(0).get<double>(), row.at(1).get<double>());
  }
  return reference;
}

struct Lines {
  std::vector<double> ours, published, tails_mb;
};

Agreement agreement_of(const std::string& group, const Lines& lines) {
  Agreement made;
  made.group = group;
  made.lines = static_cast<int64_t>(lines.ours.size());
  std::vector<double> errors;
  for (size_t i = 0; i < lines.ours.size(); ++i)
    errors.push_back(std::fabs(lines.ours[i] / lines.published[i] - 1));
  made.mean_error = mean_of(errors);
  made.largest_error = *std::max_element(errors.begin(), errors.end());
  made.correlation = correlation(lines.ours, lines.published);
  made.tail_ours = correlation(lines.ours, lines.tails_mb);
  made.tail_published = correlation(lines.published, lines.tails_mb);
  return made;
}

}  // namespace

Expected<Reference> load_reference(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return refused_reference(path, text.errors().front().message);
  const auto document = parse_foreign_json(text.value(), path, "");
  if (!document) return refused_reference(path, document.errors().front().message);
  try {
    Reference reference = reference_of(document.value());
    const auto& names = metric_names();
    if (std::find(names.begin(), names.end(), reference.metric) == names.end())
      return refused_reference(path, "unknown metric \"" + printable(reference.metric) + "\"");
    return reference;
  } catch (const nlohmann::json::exception& error) {
    return refused_reference(path, printable(error.what()));
  }
}

std::optional<double> published_for(const Reference& reference, const CellResult& cell) {
  for (const Reference::Series& series : reference.series) {
    const auto& reducers = series.reducers;
    if (series.world_size != cell.cell.world_size || !cell.cell.cap_mb ||
        std::find(reducers.begin(), reducers.end(), cell.cell.reducer) == reducers.end())
      continue;
    std::vector<double> caps = {*cell.cell.cap_mb};
    caps.insert(caps.end(), cell.cell.same_caps_mb.begin(), cell.cell.same_caps_mb.end());
    for (const double cap : caps)
      for (const auto& [published_cap, value] : series.rows)
        if (published_cap == cap && value > 0) return value;
  }
  return std::nullopt;
}

std::vector<Agreement> agreements(const Reference& reference,
                                  const std::vector<CellResult>& cells) {
  std::map<std::string, Lines> groups;
  for (const CellResult& cell : cells) {
    const auto published = published_for(reference, cell);
    const auto ours = metric_of(cell, reference.metric);
    if (!published || !ours) continue;
    Lines& lines = groups[group_of(cell.cell)];
    lines.ours.push_back(ours->value);
    lines.published.push_back(*published);
    lines.tails_mb.push_back(cell.tail_mb);
  }
  std::vector<Agreement> found;
  for (const auto& [group, lines] : groups)
    if (lines.ours.size() > 1) found.push_back(agreement_of(group, lines));
  return found;
}

}  // namespace lockstep
