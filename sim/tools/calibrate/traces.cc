#include "sim/tools/calibrate/traces.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "sim/calibrate/traced_runs.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/tools/calibrate/fit_text.h"
#include "sim/tools/calibrate/machine_file.h"

namespace lockstep {
namespace {

int with_own_links(const TracesOptions& options, const std::vector<TracedRank>& ranks) {
  const auto fit = fit_traces(ranks, options.cores > 0 ? options.cores : this_machine().cores);
  if (!fit) return bad_input(fit.errors());
  const Fit& found = fit.value();
  return leave_machine(options.out, to_text(found.machine, as_json(found)),
                       options.quiet ? "" : text_of_fit(found),
                       answer_of_fit(found, static_cast<int64_t>(ranks.size()), "trace"));
}

int with_links_of(const TracesOptions& options, const std::vector<TracedRank>& ranks) {
  SimulateVerb links;
  links.machine = options.machine;
  auto machine = machine_of(links);
  if (!machine) return bad_input(machine.errors());
  const auto run = traced_run(ranks);
  if (!run) return bad_input(run.errors());
  Fit fit;
  fit.machine = std::move(machine.value());
  fit.machine.accuracy.reset();
  fill_steps(run.value(), &fit.machine, &fit.backward.bucket_us);
  const std::string told =
      fmt::format("a step beside its layers: {:.3f} ms before, {:.3f} ms after\n",
                  static_cast<double>(fit.machine.load_ns) * 1e-6,
                  static_cast<double>(fit.machine.optimizer_ns) * 1e-6);
  return leave_machine(
      options.out, to_text(fit.machine, nlohmann::ordered_json()), options.quiet ? "" : told,
      fmt::format("fitted: {} {}, the links of {}", ranks.size(),
                  plural(static_cast<int64_t>(ranks.size()), "trace"), printable(options.machine)));
}

}  // namespace

int calibrate_on_traces(const TracesOptions& options) {
  const auto ranks = read_traced_ranks(options.files);
  if (!ranks) return bad_input(ranks.errors());
  if (options.machine.empty()) {
    const std::string why = why_no_links(ranks.value());
    if (why.empty()) return with_own_links(options, ranks.value());
    return bad_input({option_error("links are not known: " + why,
                                   "--machine FILE or WORD, or traces of all ranks over Gloo")});
  }
  if (options.cores > 0)
    return bad_input(
        {option_error("--cores has no effect beside --machine, whose links are used")});
  return with_links_of(options, ranks.value());
}

}  // namespace lockstep
