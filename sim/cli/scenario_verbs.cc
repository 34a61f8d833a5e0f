#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "scenarios/json/schema.h"
#include "sim/cli/verbs.h"
#include "sim/report/document.h"
#include "sim/report/recorded_analysis.h"
#include "sim/report/style.h"
#include "sim/report/table.h"

namespace lockstep {

int scenario_check(const Selection& selection) {
  const auto files = select(selection);
  if (!files) return bad_input(files.errors());
  std::string text;
  int64_t runs = 0;
  for (const SelectedFile& file : files.value()) {
    const auto count = static_cast<int64_t>(file.plans.size());
    text += fmt::format("{}: {} {}\n", file.path, grouped(count), plural(count, "run"));
    runs += count;
  }
  const auto count = static_cast<int64_t>(files.value().size());
  text += fmt::format("ok: {} {}, {} {}\n", grouped(count), plural(count, "file"), grouped(runs),
                      plural(runs, "run"));
  return print_result(text, kExitPass);
}

int scenario_list(const Selection& selection) {
  const auto files = select(selection);
  if (!files) return bad_input(files.errors());
  Table table;
  table.column("scenario");
  table.column("runs", Table::Align::right);
  table.column("file");
  table.column("what");
  for (const SelectedFile& file : files.value())
    table.row({file.name, grouped(static_cast<int64_t>(file.plans.size())), file.path, file.what});
  return print_result(table.text(Style(false)), kExitPass);
}

int scenario_explain(const Selection& selection) {
  const auto files = select(selection);
  if (!files) return bad_input(files.errors());
  std::vector<const RunPlan*> plans;
  for (const SelectedFile& file : files.value())
    for (const RunPlan& plan : file.plans) plans.push_back(&plan);
  if (plans.empty()) {
    print_error(fmt::format("nothing selected: no run contains \"{}\"; exit {}\n", selection.filter,
                            kExitNothing));
    return kExitNothing;
  }
  if (plans.size() == 1) return print_result(to_text(*plans.front()), kExitPass);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const RunPlan* plan : plans) all.push_back(as_json(*plan));
  using Json = nlohmann::ordered_json;
  return print_result(all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", kExitPass);
}

int print_schema(const std::string& kind) {
  return print_result(kind == "result"       ? std::string(result_schema_text())
                      : kind == "sweep"      ? sweep_schema_text()
                      : kind == "what_if"    ? what_if_schema_text()
                      : kind == "collective" ? collective_schema_text()
                      : kind == "explore"    ? explore_schema_text()
                      : kind == "compare"    ? compare_schema_text()
                      : kind == "machine"    ? machine_schema_text()
                      : kind == "recording"  ? recorded_analysis_schema()
                      : kind == "simulate"   ? simulate_schema_text()
                                             : scenario_schema_text(),
                      kExitPass);
}

}  // namespace lockstep
