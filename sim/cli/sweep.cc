#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "scenarios/base/clock.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/registered_names.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/cli/simulated_sweep.h"
#include "sim/cli/sweep_runs.h"
#include "sim/cli/verbs.h"
#include "sim/plan/bucket_layout.h"
#include "sim/report/document.h"
#include "sim/report/moving_line.h"
#include "sim/report/sweep_document.h"
#include "sim/report/sweep_svg.h"
#include "sim/report/terminal.h"
#include "sim/sweep/baseline.h"
#include "sim/sweep/design.h"

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
         "Runs of each combination (as many as are needed to distinguish them)");
  const char* judged = "Comparison";
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
  add_html(verb, &options->html);
  add_ci(verb, &options->ci);
  text("--csv", &options->csv, "Write the table as CSV", "FILE", "Output");
  text("--markdown", &options->markdown, "Write the table as Markdown", "FILE", "Output");
  text("--svg", &options->svg, "Draw step time over caps, or over world sizes", "FILE", "Output");
  text("--out", &options->out, "Run directory of this invocation", "FOLDER", "Output");
  text("--color", &options->color, "When to colour verdicts", "auto|always|never", "Output")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
}

}  // namespace

void add_sweep(CLI::App& app, std::function<int()>* action,
               const std::function<int(const SweepOptions&)>& measure) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* verb = app.add_subcommand(
      "sweep", "Measure bucket sizes, world sizes and reducers; recommend a bucket size.");
  add_selection(verb, &options->selection, false);
  add_trust_programs(verb, &options->selection);
  add_sweep_options(verb, options.get());
  verb->footer(R"(Examples, from the root of the repository
  lockstep sweep scenarios/sweeps/mlp.json --caps 1,4,25 --worlds 2
  lockstep sweep scenarios/sweeps/mlp.json --reducers bucketed,c10d --json now.json
  lockstep sweep scenarios/sweeps/mlp.json --threshold 'step_ms<=500' --markdown table.md --junit junit.xml
  lockstep sweep -- python3 train.py    (a PyTorch script of your own: lockstep program-sweep --help)

Exit codes
  0      measured; replicas alike, thresholds kept, nothing slower than the baseline
  1      replicas differ, a threshold is broken, or something is slower
  2      bad input, or an output could not be written; nothing was concluded
  3      inconclusive: a busy machine, a run that broke down, or too few rounds to judge
  128+n  interrupted by signal n; what was measured so far is printed)");
  verb->callback([=] { *action = [=] { return measure(*options); }; });
}

namespace {

constexpr size_t kAutoCaps = 8;

// All that can be wrong before anything is run.
struct Prepared {
  SweepSpec spec;
  std::vector<Cell> cells;
  std::vector<Threshold> thresholds;
  std::optional<Baseline> baseline;
  std::optional<Reference> reference;
};

template <class T>
void append_reason(const Expected<T>& failed, InputErrors* errors) {
  errors->insert(errors->end(), failed.errors().begin(), failed.errors().end());
}

// Caps that depend on the model need it to be a shipped one.
InputErrors auto_errors(const std::vector<Cell>& cells) {
  for (const Cell& cell : cells)
    if (has_cap(cell.plan) && !cell.plan.layout_known) {
      return {option_error(fmt::format("--caps auto: the gradients of model {} are not known",
                                       cell.plan.scenario.model.kind),
                           "MiB with commas between them")};
    }
  return {};
}

void read_thresholds(const std::vector<std::string>& texts, std::vector<Threshold>* thresholds,
                     InputErrors* errors) {
  for (const std::string& text : texts) {
    auto threshold = parse_threshold(text);
    if (!threshold) {
      append_reason(threshold, errors);
      continue;
    }
    const std::string name = threshold.value().text();
    if (std::any_of(thresholds->begin(), thresholds->end(),
                    [&](const Threshold& known) { return known.text() == name; }))
      errors->push_back(
          option_error(fmt::format("--threshold: {} is given twice", name), "each bound once"));
    thresholds->push_back(threshold.value());
  }
}

Expected<Prepared> prepare(const SweepOptions& options) {
  Prepared prepared;
  InputErrors errors = ci_errors(options.ci);
  for (const auto& [name, path] : {std::pair("--json", &options.json),
                                   {"--csv", &options.csv},
                                   {"--markdown", &options.markdown},
                                   {"--svg", &options.svg}})
    check_output(name, *path, &errors);
  read_thresholds(options.thresholds, &prepared.thresholds, &errors);
  if (!options.baseline.empty()) {
    auto baseline = load_baseline(options.baseline);
    if (baseline)
      prepared.baseline = std::move(baseline.value());
    else
      append_reason(baseline, &errors);
  }
  auto spec = sweep_spec(options);
  if (!spec) {
    append_reason(spec, &errors);
    return errors;
  }
  prepared.spec = std::move(spec.value());
  if (!prepared.spec.reference.empty()) {
    auto reference = load_reference(prepared.spec.reference);
    if (reference)
      prepared.reference = std::move(reference.value());
    else
      append_reason(reference, &errors);
  }
  auto cells =
      sweep_cells(options, prepared.spec, prepared.spec.caps.value_or(std::vector{kDefaultCapMib}));
  if (!cells)
    append_reason(cells, &errors);
  else if (!prepared.spec.caps)
    for (const InputError& error : auto_errors(cells.value())) errors.push_back(error);
  if (!errors.empty()) return errors;
  prepared.cells = std::move(cells.value());
  return prepared;
}

// As many rounds as it takes to tell the caps of a group apart; at least enough for a baseline.
int64_t rounds_of(const Prepared& prepared) {
  if (prepared.spec.rounds) return *prepared.spec.rounds;
  std::vector<int64_t> sizes;
  for (const Cell& cell : prepared.cells)
    sizes.push_back(
        std::count_if(prepared.cells.begin(), prepared.cells.end(),
                      [&](const Cell& other) { return group_of(other) == group_of(cell); }));
  return least_rounds(*std::max_element(sizes.begin(), sizes.end()) - 1);
}

std::map<std::string, Progress::Group> progress_of(const std::vector<Cell>& cells, int64_t rounds) {
  std::map<std::string, Progress::Group> groups;
  for (const Cell& cell : cells) groups[cell.plan.scenario.name].runs += rounds;
  return groups;
}

// Caps of each group by a pilot run with the default one: its cell becomes several.
std::vector<Cell> with_auto_caps(const SweepOptions& options, const Prepared& prepared,
                                 SweepRuns* runs, SweepDocument* document) {
  std::vector<Cell> all;
  for (const Cell& pilot : prepared.cells) {
    if (!has_cap(pilot.plan)) {
      all.push_back(pilot);
      continue;
    }
    const auto result = runs->pilot(pilot);
    const auto model = result && result->intervals
                           ? calibrated(pilot.plan, *result->intervals, prepared.spec.warmup)
                           : std::nullopt;
    std::vector<double> caps = {kDefaultCapMib};
    if (model) {
      caps = caps_to_measure(pilot.plan, *model, kAutoCaps);
      const CapPrediction best = best_of(pilot.plan, *model, caps);
      document->predictions.push_back({group_of(pilot), best.cap_mb, best.backward_ms});
    }
    SweepSpec own = prepared.spec;
    own.worlds = {pilot.world_size};
    own.reducers = {pilot.reducer};
    own.vary.clear();
    for (const auto& [pointer, value] : pilot.varied) own.vary.push_back({pointer, {value}});
    auto cells = sweep_cells(options, own, caps);
    if (cells) all.insert(all.end(), cells.value().begin(), cells.value().end());
  }
  return all;
}

int write_outputs(const SweepOptions& options, const SweepDocument& document) {
  int code = document.exit_code;
  code = write_output("--json", options.json, code, [&] { return to_text(as_json(document)); });
  code = write_output("--csv", options.csv, code, [&] { return sweep_csv(document); });
  code =
      write_output("--markdown", options.markdown, code, [&] { return sweep_markdown(document); });
  code = write_output("--svg", options.svg, code, [&] { return sweep_svg(document); });
  return code;
}

int report(const SweepOptions& options, const SweepDocument& document) {
  int code = write_outputs(options, document);
  code = leave_ci_reports(options.ci, test_report(document), code);
  const Style style = style_of(options.color, STDOUT_FILENO);
  const std::string text = options.quiet ? sweep_answer(document) : sweep_text(document, style);
  code = write_page(options.html, code, [&] {
    return HtmlPage{"sweep", text, to_text(as_json(document))};
  });
  return print_result(text, code);
}

void judge_all(const Prepared& prepared, SweepDocument* document) {
  const Machine& machine = document->machine;
  for (const Threshold& threshold : prepared.thresholds)
    document->thresholds.emplace_back(threshold, judge(threshold, document->lines));
  if (prepared.baseline)
    document->baseline = judge(*prepared.baseline, document->scenario, machine.cpu, machine.cores,
                               document->lines, document->seed);
}

void measure(const SweepOptions& options, Prepared* prepared, const std::string& worker,
             const std::string& out_dir, SweepDocument* document) {
  SweepRuns runs({.out_dir = out_dir,
                  .worker = worker,
                  .warmup = prepared->spec.warmup,
                  .seed = document->seed,
                  .repeat = !options.allow_busy});
  if (!prepared->spec.caps) prepared->cells = with_auto_caps(options, *prepared, &runs, document);
  document->rounds = rounds_of(*prepared);
  const auto calibrated_on = cell_to_calibrate_on(prepared->cells);
  if (calibrated_on) runs.sample(*calibrated_on);
  {
    Progress progress(progress_of(prepared->cells, document->rounds), can_move(STDERR_FILENO),
                      options.quiet);
    runs.measure(prepared->cells, document->rounds, &progress);
  }
  document->lines = cell_results(prepared->cells, runs.runs(), document->seed);
  if (calibrated_on) {
    auto simulated = simulated_lines(prepared->cells[*calibrated_on], runs.samples(),
                                     document->lines, document->warmup);
    if (simulated)
      document->simulated = std::move(simulated.value());
    else
      document->not_simulated = reason_of(simulated.errors());
  }
  document->runs = static_cast<int64_t>(runs.runs().size());
  document->broken = runs.broken();
  document->watch = runs.machine();
  document->signal = runs.signal();
}

std::vector<const RunPlan*> plans_of(const std::vector<Cell>& cells) {
  std::vector<const RunPlan*> plans;
  for (const Cell& cell : cells) plans.push_back(&cell.plan);
  return plans;
}

}  // namespace

int sweep(const SweepOptions& options) {
  auto prepared = prepare(options);
  if (!prepared) return bad_input(prepared.errors(), options.json, options.ci);
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors(), options.json, options.ci);
  const InputErrors unknown = unknown_names(worker.value(), plans_of(prepared.value().cells));
  if (!unknown.empty()) return bad_input(unknown, options.json, options.ci);
  auto directory = options.out.empty() ? RunDirectory::numbered() : RunDirectory::at(options.out);
  if (!directory) return bad_input(directory.errors(), options.json, options.ci);
  const RunPlan& first = prepared.value().cells.front().plan;
  SweepDocument document;
  document.scenario = first.scenario.name;
  document.file = first.file;
  document.seed = first.scenario.seed;
  document.machine = this_machine();
  document.steps = prepared.value().spec.steps;
  document.warmup = prepared.value().spec.warmup;
  document.allow_busy = options.allow_busy;
  document.reference = prepared.value().reference;
  const int64_t start_ns = now_ns();
  measure(options, &prepared.value(), worker.value(), directory.value().path(), &document);
  document.libraries = read_libraries(directory.value().path() + "/libraries.json");
  document.duration_ms = (now_ns() - start_ns) / 1'000'000;
  document.caps = cap_contrasts(document.lines, document.seed);
  document.reducers = reducer_contrasts(document.lines, document.seed);
  judge_all(prepared.value(), &document);
  conclude(&document);
  directory.value().note_verdict(document.verdict);
  return report(options, document);
}

}  // namespace lockstep
