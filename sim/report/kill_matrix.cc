#include "sim/report/kill_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "sim/report/text_style.h"

namespace lockstep {
namespace {

using Runs = std::vector<const RunResult*>;
// Whether one run was caught by what a column stands for; nothing where that did not apply.
using Caught = std::function<std::optional<bool>(const RunResult&)>;
struct MatrixColumn {
  std::string header;
  Caught caught;
};

std::optional<bool> by_lane(const RunResult& run, Lane which) {
  for (const LaneResult& lane : run.lanes)
    if (lane.lane == which && lane.verdict != LaneVerdict::not_applicable)
      return lane.verdict == LaneVerdict::fail;
  return {};
}

std::optional<bool> by_checks(const RunResult& run) {
  return std::any_of(run.checks.begin(), run.checks.end(),
                     [](const auto& check) { return check.second == CheckVerdict::fail; });
}

std::optional<bool> by_common(const RunResult& run, const std::string& name) {
  for (const auto& [known, verdict] : run.common_checks)
    if (known == name && verdict != CommonVerdict::not_run) return verdict == CommonVerdict::found;
  return {};
}

bool is_named(Lane lane, const std::vector<Runs>& rows) {
  const auto names = [&](const RunResult* run) { return by_lane(*run, lane).has_value(); };
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Runs& row) { return std::any_of(row.begin(), row.end(), names); });
}

std::vector<MatrixColumn> columns_of_matrix(const std::vector<Runs>& rows) {
  std::vector<MatrixColumn> columns;
  for (const LaneRow& row : lanes())
    if (is_named(row.lane, rows))
      columns.push_back(
          {row.word, [&row](const RunResult& run) { return by_lane(run, row.lane); }});
  columns.push_back({"checks", by_checks});
  columns.push_back(
      {"failure", [](const RunResult& run) { return run.outcome == RunEnding::failed; }});
  columns.push_back({"late", [](const RunResult& run) -> std::optional<bool> {
                       if (!run.straggler) return {};
                       return run.straggler->late_class != "none";
                     }});
  columns.push_back({"cause", [](const RunResult& run) { return run.kill->cause_right; }});
  columns.push_back({"place", [](const RunResult& run) { return run.kill->place_right; }});
  using Named = std::pair<const char*, const char*>;
  for (const Named& common :
       {Named("loss 5 %", "loss_5_percent"), Named("weights hash", "weights_hash"),
        Named("assert_close", "assert_close"), Named("norm 8 %", "gradient_norm_8_percent")})
    columns.push_back({common.first, [name = common.second](const RunResult& run) {
                         return by_common(run, name);
                       }});
  return columns;
}

std::string mark_of(const Runs& runs, const Caught& caught) {
  int64_t all = 0, found = 0;
  for (const RunResult* run : runs)
    if (const auto is = caught(*run)) {
      ++all;
      found += *is;
    }
  if (all == 0) return "";
  return found == 0 ? "." : found == all ? "x" : fmt::format("{}/{}", found, all);
}

std::string verdict_of_kills(const Runs& runs) {
  if (std::any_of(runs.begin(), runs.end(),
                  [](const RunResult* run) { return !run->kill->complete(); }))
    return "no";
  return runs.front()->kill->hidden ? "hidden" : "killed";
}

}  // namespace

KillCount count_kills(const std::vector<RunResult>& runs) {
  KillCount count;
  std::map<std::string, size_t> places;
  for (const RunResult& run : runs) {
    if (!run.kill) continue;
    (run.kill->hidden ? count.hidden : count.defects) += 1;
    (run.kill->hidden ? count.hidden_as_said : count.killed) += run.kill->complete();
    if (run.kill->hidden) continue;
    for (const auto& [name, verdict] : run.common_checks) {
      const auto [place, fresh] = places.try_emplace(name, count.common.size());
      if (fresh) count.common.emplace_back(name, KillCount::Common());
      KillCount::Common& one = count.common[place->second].second;
      ++(verdict == CommonVerdict::found    ? one.found
         : verdict == CommonVerdict::missed ? one.missed
                                            : one.not_run);
    }
  }
  return count;
}

nlohmann::ordered_json as_json(const KillCount& count) {
  if (count.defects + count.hidden == 0) return nullptr;
  nlohmann::ordered_json common = nlohmann::ordered_json::object();
  for (const auto& [name, one] : count.common)
    common[name] = {{"found", one.found}, {"missed", one.missed}, {"not_run", one.not_run}};
  return {{"defects", count.defects},
          {"killed", count.killed},
          {"hidden", count.hidden},
          {"hidden_as_said", count.hidden_as_said},
          {"common_checks", std::move(common)}};
}

Table kill_matrix(const std::vector<RunResult>& runs) {
  std::vector<Runs> rows;
  for (const RunResult& run : runs) {
    if (!run.kill) continue;
    if (rows.empty() || rows.back().front()->file != run.file) rows.emplace_back();
    rows.back().push_back(&run);
  }
  const std::vector<MatrixColumn> columns = columns_of_matrix(rows);
  Table table;
  table.column("defect");
  table.column("runs", Table::Align::right);
  table.column("verdict");
  for (const MatrixColumn& column : columns) table.column(column.header);
  for (const Runs& row : rows) {
    const std::string verdict = verdict_of_kills(row);
    std::vector<std::string> cells = {row.front()->name, grouped(std::ssize(row)), verdict};
    for (const MatrixColumn& column : columns) cells.push_back(mark_of(row, column.caught));
    table.row(std::move(cells), verdict == "no" ? Verdict::fail : Verdict::pass);
  }
  return table;
}

std::string kill_summary(const std::vector<RunResult>& runs) {
  const KillCount count = count_kills(runs);
  if (count.defects + count.hidden == 0) return "";
  std::string text = fmt::format(
      "killed: {} of {} runs with a defect, by what had to find it, cause and place right",
      grouped(count.killed), grouped(count.defects));
  if (count.hidden > 0)
    text +=
        fmt::format("; {} of {} under conditions that hide the defect showed nothing, as expected",
                    grouped(count.hidden_as_said), grouped(count.hidden));
  text += "\nthe same runs by the checks that are common today:";
  for (const auto& [name, one] : count.common)
    text += fmt::format("{} {} {} of {}", &one == &count.common.front().second ? "" : ",", name,
                        grouped(one.found), grouped(one.found + one.missed));
  return text + " that came so far\n";
}

}  // namespace lockstep
