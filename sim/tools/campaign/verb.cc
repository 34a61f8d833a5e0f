#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "scenarios/base/text.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/select.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/verbs.h"
#include "sim/launch/run_files.h"
#include "sim/report/run_text.h"
#include "sim/report/terminal.h"
#include "sim/report/text_style.h"
#include "sim/tools/campaign/batches.h"
#include "sim/tools/campaign/cases.h"
#include "sim/tools/campaign/tally.h"
#include "sim/tools/tools.h"

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

std::string percentile_ms(const std::vector<double>& ascending, double percent) {
  return ascending.empty() ? "-" : fmt::format("{:.0f}", percentile(ascending, percent));
}

std::string table_of(const std::vector<KindTally>& tallies, const Style& style) {
  Table table;
  table.column("fault");
  for (const char* header : {"runs", "as expected", "failed", "known after ms", "p95", "p99"})
    table.column(header, Table::Align::right);
  for (const KindTally& one : tallies)
    table.row({one.kind, grouped(one.runs), grouped(one.met), grouped(one.failed_runs),
               percentile_ms(one.after_ms, 50), percentile_ms(one.after_ms, 95),
               percentile_ms(one.after_ms, 99)});
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
  const Style style = style_of(options.verify.color, STDOUT_FILENO);
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
  const std::string text = text_of(options, document, tallies);
  code = write_page(options.verify.html, code, [&] {
    return HtmlPage{"campaign", text, to_text(json), document.timelines};
  });
  return print_result(text, code);
}

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
  if (count_runs(files.value()) == 0) return refuse({fewer_runs(*verify.shard)});
  ResultDocument document =
      execute_selected(verify, files.value(), worker.value(), directory.value().path());
  document.seed = options.seed;
  for (RunResult& run : document.runs) run.again = replay_command(options, run);
  leave_result(directory.value(), document);
  return report_campaign(options, document, tally(document.runs, kinds));
}

// How far verdicts can be trusted: instead of faults, defects and correct runs.
void add_trust(CLI::App* verb, CampaignOptions* options,
               std::initializer_list<CLI::Option*> others) {
  const char* group = "Instead of faults";
  auto* mutants = verb->add_option("--mutants", options->mutants,
                                   "N random trainings with a random defect: is each caught?");
  auto* clean = verb->add_option("--clean", options->clean,
                                 "N random correct trainings: is any of them accused?");
  for (CLI::Option* option : {mutants, clean}) {
    option->option_text("N")->check(between(int64_t{1}, int64_t{1'000'000}))->group(group);
    for (CLI::Option* other : others) option->excludes(other);
  }
  mutants->excludes(clean);
  verb->add_option("--busy", options->busy, "Processes that keep the cores busy meanwhile (0)")
      ->option_text("N")
      ->check(between(int64_t{0}, int64_t{1024}))
      ->group(group);
}

void add_campaign(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<CampaignOptions>();
  CLI::App* verb = app.add_subcommand("campaign",
                                      "Run random training runs: each fault must be named, each "
                                      "defect caught, no clean run accused.");
  const char* group = "Which faults";
  verb->add_option("--seeds", options->seeds, "Number of runs, one seed each (100)")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{100'000}))
      ->group(group);
  verb->add_option("--seed", options->seed, "The first seed (1)")
      ->option_text("S")
      ->check(between(uint64_t{0}, uint64_t{1} << 52))
      ->group(group);
  auto* stragglers =
      verb->add_flag("--stragglers", options->stragglers,
                     "Late ranks that cause no failure: is each named, with how it is late?")
          ->group(group);
  auto* enumerate = verb->add_flag("--enumerate", options->enumerate,
                                   "Every fatal kind on every rank at every place, W = 2 to 4")
                        ->excludes(stragglers)
                        ->group(group);
  verb->add_option("--draw", options->draw, "Of these only N, drawn by the seed")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{100'000}))
      ->needs(enumerate)
      ->group(group);
  add_trust(verb, options.get(), {stragglers, enumerate});
  const std::shared_ptr<VerifyOptions> output(options, &options->verify);
  add_narrowing(verb, output.get(), false);
  add_output(verb, output.get());
  add_html(verb, &output->html);
  add_how(verb, output.get());
  verb->footer(footer(R"(  lockstep campaign
  lockstep campaign --seeds 300 --seed 7 --json campaign.json
  lockstep campaign --enumerate --draw 150 --seed 3
  lockstep campaign --mutants 100 --seed 11
  lockstep campaign --clean 200 --seed 13 --busy 2
)"));
  verb->callback([=] { *action = [=] { return campaign(*options); }; });
}

}  // namespace

Tool campaign_tool() {
  const char* runs = " --busy --html --shard ";
  const char* tallied =
      " --busy --color --fresh-processes --html --jobs --json --keep --out --quiet --seed --shard ";
  return {
      .verb = "campaign",
      .add = add_campaign,
      .forms = {{"with --mutants", "--mutants", {"--mutants", tallied}},
                {"with --clean", "--clean", {"--clean", tallied}},
                {"with --draw",
                 "--draw",
                 {" --draw --enumerate --seed ", runs, kOutputOptions, kHowOptions}},
                {"with --enumerate",
                 "--enumerate",
                 {"--enumerate", runs, kOutputOptions, kHowOptions}},
                {"with --stragglers",
                 "--stragglers",
                 {" --seed --seeds --stragglers ", runs, kOutputOptions, kHowOptions}},
                {"of random faults", "", {" --seed --seeds ", runs, kOutputOptions, kHowOptions}}},
      .silent = {{"--busy", "work beside the runs, which are judged as without it"}}};
}

}  // namespace lockstep
