#include "sim/cli/kept_runs_verbs.h"

#include <memory>

#include "sim/cli/app_options.h"
#include "sim/cli/range.h"
#include "sim/cli/verbs.h"

namespace lockstep {
namespace {

// What both print, and where.
void add_json_and_color(CLI::App* verb, std::string* json, std::string* color) {
  verb->add_option("--json", *json, "Write the result as JSON")
      ->option_text("FILE")
      ->group("Output");
  verb->add_option("--color", *color, "When to colour verdicts")
      ->option_text("auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("Output");
}

}  // namespace

void add_analyze(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<AnalyzeOptions>();
  CLI::App* verb = app.add_subcommand(
      "analyze", "Judge a run again from what it left behind; measure it, and name its straggler.");
  verb->add_option(
          "FOLDER", options->folder,
          "Run directory, or one of an invocation; or the trace of a pipeline (.json[.gz])")
      ->required()
      ->option_text("DIR|FILE");
  add_json_and_color(verb, &options->json, &options->color);
  add_ci(verb, &options->ci);
  verb->add_flag("--metrics", options->metrics, "All intervals in --json")
      ->needs(verb->get_option("--json"))
      ->group("Output");
  verb->add_option("--machine", options->machine,
                   "What `lockstep calibrate` fitted, to predict the step time by (the run itself)")
      ->option_text("FILE");
  verb->add_option("--trace", options->trace,
                   "Timeline for Perfetto; a folder gets a file of each rank, for HTA")
      ->option_text("FILE|DIR/")
      ->group("Output");
  auto* svg = verb->add_option("--svg", options->svg,
                               "Draw a step of each rank, and how far apart ranks arrive")
                  ->option_text("FILE")
                  ->group("Output");
  verb->add_option("--svg-step", options->svg_step, "The step that is drawn (one of median length)")
      ->option_text("N")
      ->check(between(int64_t{0}, int64_t{1'000'000'000}))
      ->needs(svg)
      ->group("Output");
  verb->footer(
      footer(R"(  lockstep run scenarios/stragglers/slow.json --set /world_size=3 --keep --out slow
  lockstep analyze slow
  lockstep analyze slow/0001 --trace trace.json --svg step.svg
  lockstep analyze golden/data/stragglers/timeline-ST.json.gz
)"));
  verb->callback([=] { *action = [=] { return analyze(*options); }; });
}

void add_whatif(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<WhatIfOptions>();
  CLI::App* verb = app.add_subcommand(
      "whatif", "Predict, from a run that was kept, what a step would take without a late rank.");
  verb->add_option("FOLDER", options->folder, "Run directory, or one of an invocation")
      ->required()
      ->option_text("DIR");
  verb->add_option("--fix-rank", options->fix_ranks,
                   "Whose lateness to take away; repeatable: together (each rank in turn)")
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

}  // namespace lockstep
