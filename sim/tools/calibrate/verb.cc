#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/calibrate/fit.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/verbs.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/modelled.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/tools/calibrate/compared.h"
#include "sim/tools/calibrate/fit_text.h"
#include "sim/tools/calibrate/machine_file.h"
#include "sim/tools/calibrate/table.h"
#include "sim/tools/calibrate/traces.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

// A machine file from runs that were kept.
struct CalibrateOptions {
  std::vector<std::string> folders;  // of runs, or of invocations; with a table: one scenario
  std::string table, machine;        // published step times, and the links that they are fitted on
  std::vector<std::string> sets;
  std::string out;    // the machine file; empty: standard output shows it
  int64_t cores = 0;  // of the host that they shared; 0: of this one
  bool quiet = false;
};

// A machine is fitted to the rounds of a ring over links: other collectives would be taken for one.
InputErrors unfit_for_a_ring(const Scenario& scenario, const std::string& run) {
  const ModelledKey* row = row_for("/communicator/kind", scenario.communicator.kind);
  if (row == nullptr || row->counts == Counts::refused)
    return {option_error(
        fmt::format("{}: communicator {} cannot be fitted", run, scenario.communicator.kind),
        "runs of communicator gloo or c10d")};
  if (algorithm_of(scenario, {}) == Algorithm::ring) return {};
  return {option_error(
      fmt::format("{}: algorithm {} cannot be fitted", run, to_word(algorithm_of(scenario, {}))),
      "runs of algorithm ring")};
}

Expected<std::vector<KeptRun>> runs_in(const std::vector<std::string>& folders) {
  std::vector<KeptRun> runs;
  InputErrors errors;
  for (const std::string& folder : folders)
    for (const std::string& run : run_folders(folder)) {
      const auto outcome = read_run_folder(run);
      const InputErrors unfit =
          outcome ? unfit_for_a_ring(outcome.value().plan.scenario, run) : outcome.errors();
      if (unfit.empty()) runs.push_back(kept_run_of(outcome.value(), run));
      errors.insert(errors.end(), unfit.begin(), unfit.end());
    }
  if (!errors.empty()) return errors;
  return runs;
}

bool reads_traces(const std::vector<std::string>& paths) {
  return std::all_of(paths.begin(), paths.end(), [](const std::string& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error);
  });
}

int calibrate(const CalibrateOptions& options) {
  InputErrors errors;
  check_output("--out", options.out, &errors);
  if (!errors.empty()) return bad_input(errors);
  if (!options.table.empty())
    return calibrate_on_table({options.folders, options.table, options.machine, options.sets,
                               options.out, options.quiet});
  if (reads_traces(options.folders))
    return calibrate_on_traces(
        {options.folders, options.machine, options.out, options.cores, options.quiet});
  const auto runs = runs_in(options.folders);
  if (!runs) return bad_input(runs.errors());
  const int64_t cores = options.cores > 0 ? options.cores : this_machine().cores;
  std::vector<RunSamples> samples;
  for (const KeptRun& run : runs.value()) samples.push_back(run.samples);
  auto fit = fit_machine(samples, cores);
  if (!fit) return bad_input(fit.errors());
  fit.value().machine.accuracy = accuracy_of(compared_runs(runs.value(), cores));
  const std::string file = to_text(fit.value().machine, as_json(fit.value()));
  return leave_machine(options.out, file, options.quiet ? "" : text_of_fit(fit.value()),
                       answer_of_fit(fit.value(), fit.value().runs, "run"));
}

void add_calibrate(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* verb = app.add_subcommand(
      "calibrate",
      "Fit the simulator's machine to real runs that were kept (--keep, --out), or to traces of "
      "torch.profiler.");
  verb->add_option(
          "RUNS", options->folders,
          "Folders of runs, or of invocations; traces of a training's ranks; with --table the "
          "scenario")
      ->required();
  verb->add_option("--table", options->table,
                   "Published step times of the scenario: one row is fitted, and all are compared "
                   "(lockstep schema --table)")
      ->option_text("FILE");
  verb->add_option("--machine", options->machine,
                   "With --table, or for traces without them: the links; a file or a word, as for "
                   "lockstep simulate")
      ->option_text("FILE|WORD");
  verb->add_option("--set", options->sets, "With --table: another value in the scenario")
      ->option_text("/POINTER=VALUE")
      ->allow_extra_args(false);
  verb->add_option("--out", options->out, "The machine file for lockstep simulate --machine")
      ->option_text("FILE");
  verb->add_option("--cores", options->cores,
                   "Cores of the host that the ranks shared (this one's)")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{100'000}));
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line");
  verb->footer(R"(Examples, from the root of the repository
  lockstep run scenarios/stragglers/emulated_mlp.json --keep --out /tmp/runs
  lockstep calibrate /tmp/runs --out machine.json
  lockstep simulate scenarios/stragglers/emulated_mlp.json --machine machine.json
  lockstep calibrate scenarios/stragglers/emulated_resnet50.json --machine dgx_v100 \
    --table golden/data/published/resnet50_dgx_v100.json --out machine.json
  lockstep calibrate rank0.json rank1.json --out machine.json
  lockstep calibrate alone.json.gz --machine 25gbe --out machine.json

Exit codes
  0      fitted
  2      bad input, or the file could not be written)");
  verb->callback([=] { *action = [=] { return calibrate(*options); }; });
}

}  // namespace

Tool calibrate_tool() {
  return {
      .verb = "calibrate",
      .add = add_calibrate,
      .forms = {
          {"on a published table", "--table", {" --machine --out --quiet --set --table "}},
          {"of traces, with --out", "--out", {" --cores --machine --out --quiet "}, Reads::files},
          {"with --out", "--out", {" --cores --out --quiet "}},
          {"of traces, without --out", "", {"--cores --machine"}, Reads::files},
          {"without --out", "", {"--cores"}}}};
}

}  // namespace lockstep
