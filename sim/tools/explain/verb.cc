#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "scenarios/json/schema.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/report/document.h"
#include "sim/tools/explain/flight_timeline.h"
#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/report.h"
#include "sim/tools/explain/reproduction.h"
#include "sim/tools/explain/sources.h"
#include "sim/tools/explain/trace_arrivals.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

struct ExplainOptions {
  std::vector<std::string> paths;
  std::string json, html, scenario;
  CiOptions ci;
};

int explain_job(const ExplainOptions& options) {
  InputErrors errors = ci_errors(options.ci);
  check_output("--json", options.json, &errors);
  check_output("--scenario", options.scenario, &errors);
  if (!errors.empty()) return bad_input(errors, options.json, options.ci);
  const auto job = read_job(options.paths);
  if (!job) return bad_input(job.errors(), options.json, options.ci);
  SourcesRead counts{static_cast<int64_t>(job.value().dumps.size()), job.value().logs};
  for (const KinetoTrace& trace : job.value().traces) counts.traces.push_back(share_of(trace));
  FlightFinding found = attribute_job(job.value());
  if (found.kind == FlightClass::nothing && found.decided && !counts.traces.empty())
    find_late_in_traces(job.value().traces, &counts.traces, &found);
  const Reproduction again = reproduce(found);
  const std::string scenario = again.scenario ? options.scenario : "";
  int code = write_output("--scenario", scenario, explain_code(found),
                          [&] { return to_text(*again.scenario); });
  const bool written = !scenario.empty() && code != kExitBadInput;
  code = write_output("--json", options.json, code, [&] {
    return to_text(explain_json(found, counts, written ? scenario : ""));
  });
  code = leave_ci_reports(options.ci, explain_report(found, counts, options.paths.front()), code);
  std::string text = explain_text(found, counts);
  if (written || (!again.scenario && !options.scenario.empty()))
    text += reproduction_text(again, options.scenario);
  code = write_page(options.html, code, [&] {
    HtmlPage page{"explain", text, to_text(explain_json(found, counts, written ? scenario : ""))};
    if (auto timeline = flight_timeline(job.value().dumps, found))
      page.timelines.push_back(std::move(*timeline));
    return page;
  });
  return print_result(text, code);
}

void add_explain(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* verb =
      app.add_subcommand("explain",
                         "Name the rank that is to blame, or slow, from what a PyTorch job left: "
                         "flight recorder dumps, logs, profiler traces.");
  verb->add_option(
          "PATH", options->paths,
          "Dumps, text logs, traces of torch.profiler or Chakra, folders of them, or archives: "
          ".zip, .tar, .tar.gz")
      ->required();
  verb->add_option("--json", options->json,
                   "Write the answer as JSON (see lockstep schema --explain)")
      ->option_text("FILE")
      ->group("Output");
  verb->add_option("--scenario", options->scenario,
                   "Write a scenario in which the guilty rank fails in the same way, for lockstep "
                   "run and simulate")
      ->option_text("FILE")
      ->group("Output");
  add_html(verb, &options->html);
  add_ci(verb, &options->ci);
  verb->footer(R"(Examples
  lockstep explain dumps
  lockstep explain dumps --json answer.json
  lockstep explain /tmp/nccl_trace_rank_0 /tmp/nccl_trace_rank_1
  lockstep explain slurm-1234.out
  lockstep explain dumps logs --junit explain.xml
  lockstep explain dumps --scenario again.json
  lockstep explain traces --html traces.html

Exit codes
  0      no rank waits for another, or is late in most steps
  1      explained: the guilty ranks are named
  2      bad input, or an output could not be written
  3      undecided, with what is missing)");
  verb->callback([=] { *action = [=] { return explain_job(*options); }; });
}

}  // namespace

Tool explain_tool() {
  return {.verb = "explain",
          .add = add_explain,
          .forms = {{"", "", {" --annotations --html --json --junit --scenario "}}},
          .schema = {"--explain", "Of what explain --json writes", explain_schema_text},
          .reads = is_job_evidence};
}

}  // namespace lockstep
