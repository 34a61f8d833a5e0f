#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/cli/conclude.h"
#include "sim/cli/kept_runs.h"
#include "sim/cli/verbs.h"
#include "sim/judge/words.h"
#include "sim/report/terminal.h"
#include "sim/report/whatif_document.h"

namespace lockstep {
namespace {

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

}  // namespace

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
    const Style style(wants_color(options.color, STDOUT_FILENO));
    return print_result(whatif_text(document, style), document.exit_code);
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
}

}  // namespace lockstep
