#include "sim/cli/app_options.h"
#include "sim/cli/range.h"

namespace lockstep {
namespace {

void add_sweep_options(CLI::App* verb, SweepOptions* options) {
  const char* what = "What is measured (else what the scenario's key sweep says)";
  const auto text = [&](const char* name, auto* value, const char* help, const char* form,
                        const char* group) {
    return verb->add_option(name, *value, help)->option_text(form)->group(group);
  };
  text("--caps", &options->caps, "Bucket caps; auto: by the model's own gradients (auto)",
       "MIB,...|auto", what);
  text("--worlds", &options->worlds, "World sizes (the scenario's)", "N,...", what);
  text("--reducers", &options->reducers, "Reducers (the scenario's)", "KIND,...", what);
  text("--vary", &options->vary, "Another key with several values; repeatable",
       "/POINTER=[VALUE,...]", what)
      ->allow_extra_args(false);
  const auto number = [&](const char* name, auto* value, const char* help) {
    text(name, value, help, "N", what)->check(between(int64_t{1}, int64_t{100'000}));
  };
  number("--steps", &options->steps, "Steps of a run that count (20)");
  number("--warmup", &options->warmup, "Steps before them that do not (5)");
  number("--rounds", &options->rounds,
         "Runs of each combination (as many as it takes to tell them apart)");
  const char* judged = "What it is judged by";
  text("--threshold", &options->thresholds, "A bound that each combination keeps; repeatable",
       "'METRIC<=N'", judged)
      ->allow_extra_args(false);
  text("--baseline", &options->baseline, "--json of an earlier sweep: is anything slower now?",
       "FILE", judged);
  text("--reference", &options->reference, "A published sweep to show beside it", "FILE", judged);
  verb->add_flag("--allow-busy", options->allow_busy,
                 "Repeat no disturbed runs, and conclude from them too")
      ->group(judged);
  text("--json", &options->json, "Write the result as JSON (see lockstep schema --sweep)", "FILE",
       "Output");
  add_ci(verb, &options->ci);
  text("--csv", &options->csv, "Write the table as CSV", "FILE", "Output");
  text("--markdown", &options->markdown, "Write the table as Markdown", "FILE", "Output");
  text("--svg", &options->svg, "Draw step time over caps, or over world sizes", "FILE", "Output");
  text("--out", &options->out, "Run directory of this invocation", "DIR", "Output");
  text("--color", &options->color, "When to colour verdicts", "auto|always|never", "Output")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
}

}  // namespace

void add_sweep(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* verb = app.add_subcommand(
      "sweep", "Measure bucket sizes, world sizes and reducers; recommend a bucket size.");
  add_selection(verb, &options->selection, false);
  add_sweep_options(verb, options.get());
  verb->footer(R"(Examples, from the root of the repository
  lockstep sweep scenarios/sweeps/mlp.json --caps 1,4,25 --worlds 2
  lockstep sweep scenarios/sweeps/mlp.json --reducers bucketed,c10d --json now.json
  lockstep sweep scenarios/sweeps/mlp.json --threshold 'step_ms<=500' --markdown table.md --junit junit.xml

Exit codes
  0      measured; replicas alike, thresholds kept, nothing slower than the baseline
  1      replicas differ, a threshold is broken, or something is slower
  2      bad input, or an output could not be written; nothing was concluded
  3      inconclusive: a busy machine, a run that broke down, or too few rounds to judge
  128+n  interrupted by signal n; what was measured so far is printed)");
  verb->callback([=] { *action = [=] { return sweep(*options); }; });
}

}  // namespace lockstep
