#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "scenarios/json/schema.h"
#include "sim/analysis/gradient_log.h"
#include "sim/analysis/metrics.h"
#include "sim/analysis/timeline.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/report/document.h"
#include "sim/report/run_text.h"
#include "sim/report/text_style.h"
#include "sim/report/trace/trace.h"
#include "sim/tools/program/command.h"
#include "sim/tools/program/launcher.h"
#include "sim/tools/program/places.h"
#include "sim/tools/program/run_asked.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  ProgramRunAsked asked;
  bool analyzes = false;            // `analyze -- COMMAND`: where the time of its steps goes
  std::vector<std::string> faults;  // as they were given
  CLI::Option* world = nullptr;     // was it given?
  bool quiet = false;
  std::string gradients, follow;
  std::string json, html;
  TraceOptions trace;
  CiOptions ci;
};

std::vector<ProgramFault> read_faults(const RunOptions& options, InputErrors* errors) {
  std::vector<ProgramFault> faults;
  for (const std::string& text : options.faults) {
    auto fault = parse_program_fault(text, options.asked.world);
    if (fault)
      faults.push_back(std::move(fault.value()));
    else
      errors->insert(errors->end(), fault.errors().begin(), fault.errors().end());
  }
  return faults;
}

// Made before anything runs: a run of hours is not to end in a folder that cannot be written.
void make_gradients_folder(const RunOptions& options, InputErrors* errors) {
  if (!options.follow.empty()) {
    const auto followed = read_gradient_log(options.follow);
    if (!followed) {
      errors->insert(errors->end(), followed.errors().begin(), followed.errors().end());
    } else if (followed.value().world != options.asked.world) {
      errors->push_back(option_error(
          fmt::format("--follow {}: has {} ranks", options.follow, followed.value().world),
          fmt::format("a run of {}, as --world-size says", options.asked.world)));
    }
  }
  if (options.gradients.empty() || !errors->empty()) return;
  std::error_code error;
  const bool made = fs::create_directories(options.gradients, error);
  if (error)
    errors->push_back(
        option_error(fmt::format("--gradients {}: {}", options.gradients, error.message())));
  else if (!made && !fs::is_empty(options.gradients, error))
    errors->push_back(option_error(fmt::format("--gradients {}: is not empty", options.gradients),
                                   "a new folder, or an empty one"));
}

std::vector<std::string> variables_of(const RunOptions& options) {
  std::vector<std::string> all;
  if (options.gradients.empty()) return all;
  all.push_back("LOCKSTEP_PROGRAM_GRADIENTS=" + fs::absolute(options.gradients).string());
  std::random_device device;
  all.push_back(fmt::format("LOCKSTEP_PROGRAM_GRADIENTS_ID={:08x}{:08x}", device(), device()));
  if (!options.follow.empty())
    all.push_back("LOCKSTEP_PROGRAM_FOLLOW=" + fs::absolute(options.follow).string());
  return all;
}

// Of `analyze`, where all ranks ended well. What follows the last step of all is none.
std::optional<Metrics> metrics_of_program(const RanProgram& ran, const RunOptions& options) {
  if (!options.analyzes || !ran.result.completed) return std::nullopt;
  Metrics metrics = metrics_of(timeline_of(ran.run.outcome));
  const std::vector<int64_t>& last = ran.result.last_steps;
  const int64_t steps = last.empty() ? 0 : *std::max_element(last.begin(), last.end());
  std::erase_if(metrics.left_out, [&](const auto& one) { return one.step > steps; });
  return metrics;
}

std::string text_of(const RanProgram& ran, const RunOptions& options,
                    const std::optional<Metrics>& metrics) {
  std::string text = program_run_text(ran.result, options.quiet);
  if (!metrics || options.quiet) return text;
  RunResult measured;
  measured.metrics = metrics;
  return metrics_table(measured, style_of("never", STDOUT_FILENO)) + "\n" + text;
}

nlohmann::ordered_json json_of(const RanProgram& ran, const RunOptions& options,
                               const std::optional<Metrics>& metrics) {
  nlohmann::ordered_json json = as_json(ran.result);
  if (!options.analyzes) return json;
  json["metrics"] = nullptr;
  if (metrics) json["metrics"] = as_json(*metrics, nullptr);
  return json;
}

HtmlPage page_of(const RanProgram& ran, const RunOptions& options, const std::string& text,
                 const std::string& json) {
  HtmlPage page{options.analyzes ? "analyze" : "run", text, json};
  if (auto timeline = timeline_page(ran)) page.timelines.push_back(std::move(*timeline));
  return page;
}

int run_program_with_faults(RunOptions options) {
  InputErrors errors = ci_errors(options.ci);
  const auto asked_world =
      leave_out_launcher(&options.asked.start.command, options.asked.start.spawns, &errors);
  if (asked_world && options.world->empty()) options.asked.world = *asked_world;
  check_output("--json", options.json, &errors);
  ProgramRunAsked asked = options.asked;
  asked.faults = read_faults(options, &errors);
  const ProgramScratch scratch;
  check_places(scratch, &errors);
  check_command(asked.start.command, &errors);
  make_gradients_folder(options, &errors);
  if (errors.empty())
    if (auto error = trace_error(options.trace, 1)) errors.push_back(std::move(*error));
  if (!errors.empty()) return bad_input(errors, options.json, options.ci);
  asked.variables = variables_of(options);
  Signals signals;
  const RanProgram ran = run_with_faults(asked, scratch.path, &signals);
  const ProgramRunResult& result = ran.result;
  const std::optional<Metrics> metrics = metrics_of_program(ran, options);
  const auto json = [&] { return to_text(json_of(ran, options, metrics)); };
  int code = write_output("--json", options.json, exit_code_of(result), json);
  code = leave_trace(options.trace, ran.run.outcome, code);
  code = leave_ci_reports(options.ci, test_report(result), code);
  const std::string text = text_of(ran, options, metrics);
  code = write_page(options.html, code, [&] { return page_of(ran, options, text, json()); });
  return print_result(text, code);
}

void add_what(CLI::App* verb, RunOptions* options) {
  ProgramStart* start = &options->asked.start;
  add_started_program(verb, &start->command, &start->spawns, &start->pretends_gpus);
  options->world = verb->add_option("--world-size", options->asked.world, "How many ranks (2)")
                       ->option_text("W")
                       ->check(between(int64_t{2}, int64_t{64}));
  verb->add_option("--timeout-scale", options->asked.timeout_scale,
                   "Of the time-outs of the program's groups: 0.01 makes 30 minutes 18 seconds (1)")
      ->option_text("X")
      ->check(between(1e-6, 1e3));
  verb->add_option("--limit", options->asked.watch.limit_s, "Seconds that the run may take (600)")
      ->option_text("S")
      ->check(between(1.0, 604'800.0));
  verb->add_option("--hang-after", options->asked.watch.hang_after_s,
                   "Seconds without anything new of any rank that are taken for a hang (30)")
      ->option_text("S")
      ->check(between(1.0, 604'800.0));
}

void add_faults(CLI::App* verb, RunOptions* options) {
  verb->add_option("--fault", options->faults,
                   "What goes wrong on purpose, as \"kill rank=1 step=3\"; may be repeated")
      ->option_text("FAULT")
      ->allow_extra_args(false);
}

void add_gradients(CLI::App* verb, RunOptions* options) {
  CLI::Option* gradients =
      verb->add_option(
              "--gradients", options->gradients,
              "Record the gradients of all ranks and steps there, for lockstep compare A B")
          ->option_text("FOLDER")
          ->group("Output");
  verb->add_option(
          "--follow", options->follow,
          "Take the reduced gradients of this recorded run in each step, so that both keep "
          "the same weights and compare can judge every step")
      ->option_text("FOLDER")
      ->needs(gradients);
}

void add_written(CLI::App* verb, RunOptions* options) {
  verb->add_option("--json", options->json,
                   "Write the result as JSON (see lockstep schema --program-run)")
      ->option_text("FILE")
      ->group("Output");
  add_html(verb, &options->html);
  add_trace(verb, &options->trace);
  add_ci(verb, &options->ci);
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
}

void add_program_analyze(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<RunOptions>();
  options->analyzes = true;
  CLI::App* verb = app.add_subcommand(
      "program-analyze",
      "Show where the time of your own PyTorch script goes: analyze [options] -- COMMAND.");
  add_what(verb, options.get());
  add_written(verb, options.get());
  verb->footer(R"(Examples, from the root of the repository
  lockstep analyze -- python3 examples/toy_ddp.py
  lockstep analyze --world-size 4 --html report.html -- python3 examples/cifar_like.py

Exit codes
  0      all ranks completed (one may have been late)
  1      the program failed: which rank, how, and which ranks because of it
  2      bad input
  3      inconclusive: no rank can be named
  128+n  interrupted by signal n)");
  verb->callback([=] { *action = [=] { return run_program_with_faults(*options); }; });
}

void add_program_run(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* verb = app.add_subcommand(
      "program-run", "Run your own PyTorch script, with faults: run [options] -- COMMAND.");
  add_what(verb, options.get());
  add_faults(verb, options.get());
  add_gradients(verb, options.get());
  add_written(verb, options.get());
  verb->footer(R"(Examples, from the root of the repository
  lockstep run -- python3 examples/toy_ddp.py
  lockstep run --world-size 3 --fault "kill rank=1 step=3" -- python3 examples/toy_ddp.py
  lockstep run --fault "stall rank=1 duration_ms=200" -- python3 examples/toy_ddp.py
  lockstep run --fault "deadlock rank=1 step=5 phase=forward" --timeout-scale 0.002 -- python3 examples/toy_ddp.py
  lockstep run --fault "stop rank=0 collective=7 duration_ms=2000" -- python3 examples/toy_ddp.py
  lockstep run --trace dumps/ --trace-kind flight_recorder -- python3 examples/toy_ddp.py   # for lockstep explain dumps
  lockstep run --gradients a -- python3 examples/toy_ddp.py
  lockstep run --gradients b --follow a -- python3 examples/toy_ddp.py   # then: lockstep compare a b

Exit codes
  0      all ranks completed (one may have been late)
  1      the program failed: which rank, how, and which ranks because of it
  2      bad input
  3      inconclusive: a fault never acted, or no rank can be named
  128+n  interrupted by signal n)");
  verb->callback([=] { *action = [=] { return run_program_with_faults(*options); }; });
}

}  // namespace

Tool program_analyze_tool() {
  return {.verb = "program-analyze",
          .add = add_program_analyze,
          .forms = {{"",
                     "",
                     {" --annotations --hang-after --html --json --junit --limit --pretend-gpus "
                      "--quiet --spawns --timeout-scale --trace --trace-kind --world-size "}}}};
}

Tool program_run_tool() {
  return {
      .verb = "program-run",
      .add = add_program_run,
      .forms = {{"",
                 "",
                 {" --annotations --fault --follow --gradients --hang-after --html --json --junit "
                  "--limit --pretend-gpus --quiet --spawns --timeout-scale --trace --trace-kind "
                  "--world-size "}}},
      .schema = {"--program-run", "Of what run -- COMMAND --json writes", program_run_schema_text}};
}

}  // namespace lockstep
