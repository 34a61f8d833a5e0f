#include <fmt/format.h>
#include <unistd.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "sim/cli/execution.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/verbs.h"
#include "sim/plan/plans.h"
#include "sim/report/terminal.h"
#include "sim/tools/tools.h"
#include "sim/tools/whatif/forecast.h"

namespace lockstep {
namespace {

// From what a run left behind: its steps without the lateness of some ranks.
struct WhatIfOptions {
  std::string folder;              // of one run, or of an invocation
  std::vector<int64_t> fix_ranks;  // together; empty: each rank in turn
  std::string json;
  std::string color = "auto";
};

std::vector<size_t> ascending(const std::vector<int64_t>& ranks) {
  std::vector<size_t> ascending(ranks.begin(), ranks.end());
  std::sort(ascending.begin(), ascending.end());
  ascending.erase(std::unique(ascending.begin(), ascending.end()), ascending.end());
  return ascending;
}

Expected<WhatIfDocument::Run> forecast_run(const std::string& folder,
                                           const std::vector<size_t>& fixed) {
  const auto outcome = read_run_folder(folder);
  if (!outcome) return outcome.errors();
  const Timeline timeline = timeline_of(outcome.value());
  const auto ranks = static_cast<size_t>(timeline.world_size);
  if (!fixed.empty() && fixed.back() >= ranks) {
    InputError error = option_error(
        fmt::format("--fix-rank {}: {} has ranks 0 to {}", fixed.back(), folder, ranks - 1));
    return error;
  }
  if (fixed.size() == ranks)
    return option_error(
        fmt::format("--fix-rank: {} has no other rank whose durations could be taken", folder));
  const RunPlan& plan = outcome.value().plan;
  return WhatIfDocument::Run{folder, plan.scenario.name, label_of(plan.set),
                             forecast_of(replayed_steps_of(timeline), fixed, plan.scenario.seed)};
}

int whatif(const WhatIfOptions& options) {
  WhatIfDocument document;
  try {
    for (const std::string& folder : run_folders(options.folder)) {
      auto run = forecast_run(folder, ascending(options.fix_ranks));
      if (!run) return bad_input(run.errors(), options.json);
      if (!run.value().forecast) document.exit_code = kExitInconclusive;
      document.runs.push_back(std::move(run.value()));
    }
    if (!options.json.empty()) write_atomically(options.json, to_text(as_json(document)));
    const Style style = style_of(options.color, STDOUT_FILENO);
    return print_result(whatif_text(document, style), document.exit_code);
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
}

void add_whatif(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<WhatIfOptions>();
  CLI::App* verb = app.add_subcommand(
      "whatif", "Predict from a kept run how long a step would take without a late rank.");
  verb->add_option("FOLDER", options->folder, "Run directory, or one of an invocation")
      ->required()
      ->option_text("FOLDER");
  verb->add_option(
          "--fix-rank", options->fix_ranks,
          "Rank whose lateness to remove; repeat to remove several together (each rank in turn)")
      ->option_text("R")
      ->allow_extra_args(false)
      ->check(between(int64_t{0}, int64_t{1'000'000}));
  add_json_and_color(verb, &options->json, &options->color);
  verb->footer(R"(Examples, from the root of the repository
  lockstep run scenarios/stragglers/named_compute.json --filter world_size=3 --keep --out late
  lockstep whatif late
  lockstep whatif late/0001 --fix-rank 1 --json without.json

Exit codes
  0      predicted
  2      bad input, or an output could not be written
  3      inconclusive: a run has no whole step of several ranks after its first
  128+n  interrupted by signal n)");
  verb->callback([=] { *action = [=] { return whatif(*options); }; });
}

}  // namespace

Tool whatif_tool() {
  return {.verb = "whatif",
          .add = add_whatif,
          .forms = {{"", "", {" --color --fix-rank --json "}}},
          .silent = {{"--color", "there is no verdict to colour"}}};
}

}  // namespace lockstep
