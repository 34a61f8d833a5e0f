#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "sim/campaign/draw.h"
#include "sim/campaign/tally.h"
#include "sim/cli/campaign_runs.h"
#include "sim/cli/conclude.h"
#include "sim/cli/execution.h"
#include "sim/cli/narrow.h"
#include "sim/cli/output_files.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/verbs.h"
#include "sim/launch/files.h"
#include "sim/report/run_text.h"
#include "sim/report/table.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Kinds = std::vector<std::pair<std::string, std::string>>;  // of each case, by its name

std::vector<Json> cases_of(const CampaignOptions& options) {
  if (options.enumerate && options.draw > 0)
    return some_enumerated_cases(options.seed, options.draw);
  if (options.enumerate) return enumerated_cases();
  std::vector<Json> cases;
  for (int64_t i = 0; i < options.seeds; ++i) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(i);
    cases.push_back(options.stragglers ? straggler_case(seed) : drawn_case(seed));
  }
  return cases;
}

// As scenario files below the run directory, where they can be run again; their kinds of fault.
Kinds write_cases(const std::vector<Json>& cases, const std::string& folder) {
  Kinds kinds;
  std::filesystem::remove_all(folder);  // of an earlier campaign with the same --out
  make_dir(folder);
  for (const Json& one : cases) {
    const std::string name = one["name"];
    const Json& faults = one["faults"];
    kinds.emplace_back(name, faults.empty() ? "none" : faults[0]["kind"].get<std::string>());
    write_file(fmt::format("{}/{}.json", folder, name), one.dump(2) + "\n");
  }
  return kinds;
}

std::string milliseconds(const std::vector<double>& ascending, double percent) {
  return ascending.empty() ? "-" : fmt::format("{:.0f}", percentile(ascending, percent));
}

std::string table_of(const std::vector<KindTally>& tallies, const Style& style) {
  Table table;
  table.column("fault");
  for (const char* header : {"runs", "as expected", "failed", "known after ms", "p95", "p99"})
    table.column(header, Table::Align::right);
  for (const KindTally& one : tallies)
    table.row({one.kind, grouped(one.runs), grouped(one.met), grouped(one.failed_runs),
               milliseconds(one.after_ms, 50), milliseconds(one.after_ms, 95),
               milliseconds(one.after_ms, 99)});
  return table.text(style);
}

std::string replay_command(const CampaignOptions& options, const RunResult& run) {
  if (options.enumerate) return fmt::format("lockstep run {}", run.file);
  return fmt::format("lockstep campaign{} --seeds 1 --seed {}",
                     options.stragglers ? " --stragglers" : "",
                     run.name.substr(run.name.rfind('-') + 1));
}

std::string text_of(const CampaignOptions& options, const ResultDocument& document,
                    const std::vector<KindTally>& tallies) {
  const Style style(wants_color(options.verify.color, fileno(stdout)));
  std::string answer = colored_answer(answer_line(document), style);
  if (options.verify.quiet) return answer;
  std::string text = head_line(document) + "\n" + table_of(tallies, style);
  for (const RunResult& run : document.runs)
    if (run.met != true || options.verify.verbose) text += "\n" + run_text(run, style);
  return text + "\n" + answer;
}

// The files of drawn cases are nobody's: annotations name none.
TestReport test_report_of(const ResultDocument& document) {
  TestReport reported = test_report("campaign", document);
  for (TestCase& one : reported.cases) one.file.clear();
  return reported;
}

int report_campaign(const CampaignOptions& options, const ResultDocument& document,
                    const std::vector<KindTally>& tallies) {
  for (const InputError& error : document.errors) print_error(fmt::format("{}\n", to_text(error)));
  int code = document.exit_code;
  Json json = as_json(document);
  json["campaign"] = {{"seed", options.seed}, {"kinds", as_json(tallies)}};
  code = write_output("--json", options.verify.json, code, [&] { return to_text(json); });
  code = leave_ci_reports(options.verify.ci, test_report_of(document), code);
  return print_result(text_of(options, document, tallies), code);
}

}  // namespace

int campaign(CampaignOptions options) {
  if (options.mutants > 0) return campaign_of_mutants(options);
  if (options.clean > 0) return campaign_of_clean_runs(options);
  const BusyCores busy(options.busy);
  VerifyOptions& verify = options.verify;
  InputErrors errors = ci_errors(verify.ci);
  check_output("--json", verify.json, &errors);
  const auto refuse = [&](const InputErrors& all) {
    return bad_input(all, verify.json, verify.ci);
  };
  if (!errors.empty()) return refuse(errors);
  const auto worker = find_worker();
  if (!worker) return refuse(worker.errors());
  auto directory = verify.out.empty() ? RunDirectory::numbered() : RunDirectory::at(verify.out);
  if (!directory) return refuse(directory.errors());
  const std::string folder = directory.value().path() + "/campaign_cases";
  Kinds kinds;
  try {
    kinds = write_cases(cases_of(options), folder);
  } catch (const std::exception& error) {
    return refuse({option_error(error.what())});
  }
  verify.selection.paths = {folder};
  auto files = select(verify.selection);
  if (!files) return refuse(files.errors());
  if (verify.shard) keep_shard(*verify.shard, &files.value());
  if (count_runs(files.value()) == 0)
    return refuse({option_error(fmt::format("--shard {}/{}: there are fewer runs",
                                            verify.shard->index, verify.shard->count))});
  ResultDocument document =
      execute_selected(verify, files.value(), worker.value(), directory.value().path());
  document.seed = options.seed;
  for (RunResult& run : document.runs) run.again = replay_command(options, run);
  leave_result(directory.value(), document);
  return report_campaign(options, document, tally(document.runs, kinds));
}

}  // namespace lockstep
