#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "scenarios/json/schema.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/report/document.h"
#include "sim/report/moving_line.h"
#include "sim/sweep/design.h"
#include "sim/tools/program/command.h"
#include "sim/tools/program/launcher.h"
#include "sim/tools/program/places.h"
#include "sim/tools/program/scenario_verb.h"
#include "sim/tools/program/sweep_result.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

struct ProgramSweepOptions {
  ProgramSweepPlan plan;
  std::string caps, worlds;  // as they were given
  bool quiet = false, fresh_processes = false;
  std::string json, html, csv, markdown;
  CiOptions ci;
};

constexpr int64_t kMostProgramRanks = 64;

template <class T>
void take_list(Expected<std::vector<T>> list, std::vector<T>* values, InputErrors* errors) {
  if (list)
    *values = std::move(list.value());
  else
    errors->insert(errors->end(), list.errors().begin(), list.errors().end());
}

void read_lists(const ProgramSweepOptions& options, ProgramSweepPlan* plan, InputErrors* errors) {
  if (options.caps == "auto")
    errors->push_back(
        option_error("--caps: \"auto\" is for scenarios, whose gradients are known",
                     "MiB with commas between them, and --predict for those between"));
  else if (!options.caps.empty())
    take_list(parse_caps(options.caps), &plan->caps, errors);
  std::sort(plan->caps.begin(), plan->caps.end());
  if (!options.worlds.empty()) take_list(parse_worlds(options.worlds), &plan->worlds, errors);
  for (const int64_t world : plan->worlds)
    if (world < 2 || world > kMostProgramRanks)
      errors->push_back(option_error(fmt::format("--worlds: {}", world), "2 to 64 ranks"));
}

// What is predicted of caps is held against others, and one world size has one machine.
void check_prediction(const ProgramSweepPlan& plan, InputErrors* errors) {
  if (plan.predicts && plan.caps.size() == 1)
    errors->push_back(
        option_error("--predict: one cap is measured, so that nothing is there to "
                     "hold predictions against",
                     "two or more --caps"));
  if (!plan.calibration.empty() && plan.worlds.size() > 1)
    errors->push_back(
        option_error(fmt::format("--calibration: {} world sizes are measured, each with a machine "
                                 "of its own",
                                 plan.worlds.size()),
                     "one of --worlds"));
}

void make_calibration_folder(const std::string& folder, InputErrors* errors) {
  if (folder.empty() || !errors->empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    errors->push_back(option_error(fmt::format("--calibration {}: {}", folder, error.message())));
  for (const char* file : {kProgramScenario, kProgramProfile, kProgramMachine})
    if (!error) check_output("--calibration", folder + "/" + file, errors);
}

void sweep_worlds(const ProgramSweepOptions& options, const std::string& scratch,
                  ProgramSweepResult* result) {
  const ProgramSweepPlan& plan = result->plan;
  // As torchrun does: ranks of one host share its cores.
  ::setenv("OMP_NUM_THREADS", "1", 0);
  Signals signals;
  std::unique_ptr<ProgramZygotes> zygotes;
  if (!options.fresh_processes && !plan.start.spawns)
    zygotes = std::make_unique<ProgramZygotes>(plan.start.command, program_agent_folder(), scratch,
                                               plan.start.directory);
  ProgramLaunch launch{.start = plan.start,
                       .folder = scratch,
                       .agent = program_agent_folder(),
                       .limit_s = plan.limit_s,
                       .zygotes = zygotes.get()};
  MovingLine line(!options.quiet && can_move(STDERR_FILENO));
  for (const int64_t world : plan.worlds) {
    launch.world = world;
    result->worlds.push_back(
        sweep_world(plan, launch, &signals, [&](const std::string& text) { line.show(text); }));
    result->signal = result->worlds.back().signal;
    if (result->signal != 0) break;
  }
}

int write_calibration(const ProgramSweepResult& result, int code) {
  const std::string& folder = result.plan.calibration;
  if (folder.empty() || result.worlds.empty()) return code;
  const auto& prediction = result.worlds.front().prediction;
  if (!prediction || !prediction->model) return code;
  try {
    write_program_model(*prediction->model, prediction->measured()->cap_mb,
                        prediction->first_bucket_bytes, folder);
    return code;
  } catch (const std::exception& error) {
    print_error(fmt::format("lockstep: error: --calibration {}\n", error.what()));
    return kExitBadInput;
  }
}

int write_results(const ProgramSweepOptions& options, const ProgramSweepResult& result) {
  int code = write_calibration(result, exit_code_of(result));
  code = write_output("--json", options.json, code, [&] { return to_text(as_json(result)); });
  code = write_output("--csv", options.csv, code, [&] { return program_sweep_csv(result); });
  code = write_output("--markdown", options.markdown, code,
                      [&] { return program_sweep_markdown(result); });
  return leave_ci_reports(options.ci, test_report(result), code);
}

int sweep_program(const ProgramSweepOptions& options) {
  InputErrors errors = ci_errors(options.ci);
  for (const auto& [name, path] : {std::pair("--json", &options.json),
                                   {"--csv", &options.csv},
                                   {"--markdown", &options.markdown}})
    check_output(name, *path, &errors);
  ProgramSweepResult result;
  result.plan = options.plan;
  const auto asked_world =
      leave_out_launcher(&result.plan.start.command, result.plan.start.spawns, &errors);
  if (asked_world && options.worlds.empty()) result.plan.worlds = {*asked_world};
  read_lists(options, &result.plan, &errors);
  check_prediction(result.plan, &errors);
  const ProgramScratch scratch;
  check_places(scratch, &errors);
  check_command(result.plan.start.command, &errors, result.plan.start.directory);
  make_calibration_folder(result.plan.calibration, &errors);
  if (!errors.empty()) return bad_input(errors, options.json, options.ci);
  result.machine = this_machine();
  const auto begin = std::chrono::steady_clock::now();
  sweep_worlds(options, scratch.path, &result);
  result.duration_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string text =
      program_sweep_text(result, options.quiet, style_of("never", STDOUT_FILENO));
  const int code = write_page(options.html, write_results(options, result), [&] {
    return HtmlPage{"sweep", text, to_text(as_json(result))};
  });
  return print_result(text, code);
}

void add_measured(CLI::App* verb, ProgramSweepOptions* options) {
  ProgramSweepPlan* plan = &options->plan;
  const char* what = "What is measured";
  const auto text = [&](const char* name, auto* value, const char* help, const char* form) {
    return verb->add_option(name, *value, help)->option_text(form)->group(what);
  };
  text("--caps", &options->caps, "Bucket caps in place of the script's own (1,5,25,100)",
       "MIB,...");
  text("--worlds", &options->worlds, "World sizes, one after another (2)", "N,...");
  text("--steps", &plan->steps, "Steps of a run that count; then it ends (20)", "N")
      ->check(between(int64_t{3}, int64_t{100'000}));
  text("--warmup", &plan->warmup, "Steps before them that do not (5)", "N")
      ->check(between(int64_t{2}, int64_t{100'000}));
  text("--rounds", &plan->rounds, "Runs of each cap (as many as are needed to distinguish them)",
       "N")
      ->check(between(int64_t{1}, int64_t{100'000}));
  verb->add_flag("--allow-busy", plan->allow_busy,
                 "Repeat no disturbed runs, and conclude from them too")
      ->group(what);
}

void add_predicted(CLI::App* verb, ProgramSweepOptions* options) {
  CLI::Option* predict =
      verb->add_flag("--predict", options->plan.predicts,
                     "Predict caps between those that are measured, in virtual time")
          ->group("What is predicted");
  verb->add_option("--calibration", options->plan.calibration,
                   "Leave the program there as scenario, profile and machine for lockstep simulate")
      ->option_text("FOLDER")
      ->needs(predict)
      ->group("What is predicted");
}

void add_started(CLI::App* verb, ProgramSweepOptions* options) {
  ProgramSweepPlan* plan = &options->plan;
  ProgramStart* start = &plan->start;
  add_started_program(verb, &start->command, &start->spawns, &start->pretends_gpus);
  verb->add_flag("--fresh-processes", options->fresh_processes,
                 "Start a Python for each rank, instead of forking it");
  verb->add_option("--limit", plan->limit_s, "Seconds that one run may take (120)")
      ->option_text("S")
      ->check(between(1.0, 86'400.0));
}

void add_written(CLI::App* verb, ProgramSweepOptions* options) {
  const auto file = [&](const char* name, std::string* value, const char* help) {
    verb->add_option(name, *value, help)->option_text("FILE")->group("Output");
  };
  file("--json", &options->json, "Write the result as JSON (see lockstep schema --program-sweep)");
  file("--csv", &options->csv, "Write the tables as CSV");
  file("--markdown", &options->markdown, "Write the tables as Markdown");
  add_html(verb, &options->html);
  add_ci(verb, &options->ci);
  verb->add_flag("-q,--quiet", options->quiet, "Only the answers")->group("Output");
}

void add_program_sweep(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<ProgramSweepOptions>();
  CLI::App* verb = app.add_subcommand(
      "program-sweep",
      "Measure bucket sizes for your own PyTorch script: sweep [options] -- COMMAND.");
  add_started(verb, options.get());
  add_measured(verb, options.get());
  add_predicted(verb, options.get());
  add_written(verb, options.get());
  verb->footer(R"(Examples, from the root of the repository
  lockstep sweep -- python3 examples/toy_ddp.py
  lockstep sweep --caps 1,4,25 --worlds 2,4 -- python3 train.py
  lockstep sweep --predict --calibration cal -- python3 train.py   # then, at more ranks:
  lockstep simulate cal/scenario.json --machine cal/machine.json --world-size 64
  lockstep sweep --caps 1,25 --steps 50 --warmup 10 --json now.json -- python3 train.py

Exit codes
  0      measured: a recommendation, or that nothing differs beyond noise
  2      bad input
  3      inconclusive: a busy machine, a program that could not be run or measured, predictions that are off
  128+n  interrupted by signal n)");
  verb->callback([=] { *action = [=] { return sweep_program(*options); }; });
}

// The options of the command line as the file's keys, which are checked by one schema.
struct SweepKey {
  std::string set, option;  // "/sweep/caps=[1,4]", "--caps 1,4"
};

std::vector<SweepKey> keys_of(const SweepOptions& options) {
  std::vector<SweepKey> keys;
  const auto put = [&](const char* key, const std::string& value, const char* form) {
    keys.push_back({fmt::format("/sweep/{}={}", key, fmt::format(fmt::runtime(form), value)),
                    fmt::format("--{} {}", key, value)});
  };
  if (!options.caps.empty()) put("caps", options.caps, "[{}]");
  if (!options.worlds.empty()) put("worlds", options.worlds, "[{}]");
  if (options.steps) put("steps", std::to_string(*options.steps), "{}");
  if (options.warmup) put("warmup", std::to_string(*options.warmup), "{}");
  if (options.rounds) put("rounds", std::to_string(*options.rounds), "{}");
  return keys;
}

// Errors are about the options that were given.
Expected<std::vector<ProgramScenarioFile>> select_with(const SweepOptions& options) {
  Selection selection = options.selection;
  const std::vector<SweepKey> keys = keys_of(options);
  for (const SweepKey& key : keys) selection.sets.push_back(key.set);
  auto files = select_programs(selection);
  if (files) return files;
  InputErrors errors = files.errors();
  for (InputError& error : errors)
    for (const SweepKey& key : keys)
      if (error.file == printable("--set " + key.set)) error.file = printable(key.option);
  return errors;
}

ProgramSweepPlan plan_of(const ProgramScenario& scenario) {
  const ProgramPart& program = scenario.program;
  const ProgramSweepPart& sweep = scenario.sweep;
  ProgramSweepPlan plan;
  plan.start = program.start;
  if (program.limit_s) plan.limit_s = *program.limit_s;
  if (!sweep.caps.empty()) plan.caps = sweep.caps;
  plan.worlds = sweep.worlds.empty() ? std::vector{scenario.world_size} : sweep.worlds;
  if (sweep.steps) plan.steps = *sweep.steps;
  if (sweep.warmup) plan.warmup = *sweep.warmup;
  plan.rounds = sweep.rounds;
  plan.predicts = sweep.predict;
  return plan;
}

// The one run that is chosen.
Expected<ProgramScenario> chosen(const SweepOptions& options) {
  const auto files = select_with(options);
  if (!files) return files.errors();
  InputErrors untrusted = untrusted_programs(options.selection, files.value());
  if (!untrusted.empty()) return untrusted;
  std::vector<ProgramScenario> runs;
  for (const ProgramScenarioFile& file : files.value())
    runs.insert(runs.end(), file.runs.begin(), file.runs.end());
  if (runs.size() != 1)
    return option_error(fmt::format("{} runs are selected", runs.size()),
                        "one: pin the axes with --set");
  if (runs.front().is_run)
    return option_error("sweep: the scenario has \"faults\"", "a scenario without them");
  return runs.front();
}

}  // namespace

int sweep_program_scenario(const SweepOptions& options) {
  const auto scenario = chosen(options);
  if (!scenario) return bad_input(scenario.errors(), options.json, options.ci);
  ProgramSweepOptions program;
  program.plan = plan_of(scenario.value());
  program.plan.allow_busy = options.allow_busy;
  program.fresh_processes = scenario.value().program.fresh_processes;
  program.quiet = options.quiet;
  program.json = options.json;
  program.html = options.html;
  program.csv = options.csv;
  program.markdown = options.markdown;
  program.ci = options.ci;
  return sweep_program(program);
}

Tool program_sweep_tool() {
  return {
      .verb = "program-sweep",
      .add = add_program_sweep,
      .forms = {{"",
                 "",
                 {" --allow-busy --annotations --calibration --caps --csv --fresh-processes --html "
                  "--json --junit --limit --markdown --predict --pretend-gpus --quiet --rounds "
                  "--spawns --steps --warmup --worlds "}}},
      .schema = {"--program-sweep", "Of what sweep -- COMMAND --json writes",
                 program_sweep_schema_text}};
}

}  // namespace lockstep
