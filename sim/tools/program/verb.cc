#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/report/document.h"
#include "sim/tools/program/command.h"
#include "sim/tools/program/launcher.h"
#include "sim/tools/program/places.h"
#include "sim/tools/program/result.h"
#include "sim/tools/program/scenario.h"
#include "sim/tools/program/scenario_verb.h"
#include "sim/tools/program/verify.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

struct ProgramOptions {
  ProgramVerification asked;
  std::vector<int64_t> worlds;  // as asked for; none: those of the command's launcher, or 2
  bool quiet = false;
  std::string json, html;
  CiOptions ci;
};

// On a terminal alone, since a world size may take minutes.
void say_progress(const ProgramOptions& options, int64_t world) {
  if (!options.quiet && ::isatty(STDERR_FILENO) != 0)
    print_error(fmt::format("{} on {} ranks ...\n", options.asked.start.command[0], world));
}

int verify_program(ProgramOptions options) {
  InputErrors errors = ci_errors(options.ci);
  const auto asked_world =
      leave_out_launcher(&options.asked.start.command, options.asked.start.spawns, &errors);
  if (options.worlds.empty()) options.worlds = {asked_world.value_or(2)};
  check_output("--json", options.json, &errors);
  const ProgramScratch scratch;
  check_places(scratch, &errors);
  check_command(options.asked.start.command, &errors);
  if (!errors.empty()) return bad_input(errors, options.json, options.ci);
  ProgramResult result;
  result.command = options.asked.start.command;
  Signals signals;
  const auto zygotes = make_zygotes(options.asked, scratch.path);
  for (const int64_t world : options.worlds) {
    say_progress(options, world);
    ProgramWorld& found = result.worlds.emplace_back();
    found.world_size = world;
    result.signal = judge_world(options.asked, scratch.path, zygotes.get(), &signals, &found);
    if (result.signal != 0) break;
  }
  if (zygotes) result.why_fresh = zygotes->why_fresh();
  result.forked = zygotes && zygotes->fork();
  int code = write_output("--json", options.json, exit_code_of(result),
                          [&] { return to_text(as_json(result)); });
  code = leave_ci_reports(options.ci, test_report(result), code);
  const std::string text = program_text(result, options.quiet);
  code = write_page(options.html, code, [&] {
    return HtmlPage{"verify", text, to_text(as_json(result))};
  });
  return print_result(text, code);
}

void add_program(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<ProgramOptions>();
  CLI::App* verb = app.add_subcommand(
      "program", "Check your own, unmodified PyTorch script: verify [options] -- COMMAND.");
  ProgramStart* start = &options->asked.start;
  add_started_program(verb, &start->command, &start->spawns, &start->pretends_gpus);
  verb->add_option("--world-sizes", options->worlds, "How many ranks, one after another (2)")
      ->delimiter(',')
      ->option_text("W,...")
      ->allow_extra_args(false)
      ->check(between(int64_t{2}, int64_t{64}));
  verb->add_flag("--fresh-processes", options->asked.fresh_processes,
                 "Start a Python for each rank, instead of forking it");
  verb->add_option(
          "--seed", options->asked.seed,
          "Seed torch, NumPy and random of every process; for a program that seeds nothing")
      ->option_text("N")
      ->check(between(int64_t{0}, int64_t{4'294'967'295}));
  verb->add_option("--hook-error", options->asked.hook.error,
                   "The comm hook loses something on purpose: how far its result may be from the "
                   "mean of the ranks' gradients, relative to that (0.01: 1 %)")
      ->option_text("E")
      ->check(between(1e-9, 1e3));
  verb->add_option("--hook-owed", options->asked.hook.owed,
                   "How much a comm hook with error feedback may owe at any time, relative to the "
                   "largest mean so far")
      ->option_text("E")
      ->check(between(1e-9, 1e3));
  verb->add_option("--limit", options->asked.limit_s, "Seconds that one run may take (120)")
      ->option_text("S")
      ->check(between(1.0, 86'400.0));
  CLI::Option* drill = verb->add_flag(
      "--drill", options->asked.drills,
      "Run a wrong step again, however long it takes, and name the first wrong operator");
  verb->add_flag("--no-drill", options->asked.never_drills, "Never do so")->excludes(drill);
  verb->add_flag("--local-batch-norm", options->asked.local_batch_norm,
                 "BatchNorm is local to each rank on purpose: one device normalizes each rank's "
                 "batch separately")
      ->excludes(drill);
  verb->add_option("--json", options->json,
                   "Write the result as JSON (see lockstep schema --program)")
      ->option_text("FILE")
      ->group("Output");
  add_html(verb, &options->html);
  add_ci(verb, &options->ci);
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
  verb->footer(R"(Examples, from the root of the repository
  lockstep verify --world-sizes 2,3 -- python3 examples/toy_ddp.py
  lockstep verify --spawns -- python3 examples/spawned.py
  lockstep verify --local-batch-norm -- python3 examples/toy_ddp.py --bug local_batch_norm
  lockstep program --world-sizes 2 -- python3 examples/toy_ddp.py --bug summed_loss

Exit codes
  0      the training on several ranks is that of one device
  1      it is not
  2      bad input
  3      inconclusive: it could not be run or compared
  128+n  interrupted by signal n)");
  verb->callback([=] { *action = [=] { return verify_program(*options); }; });
}

}  // namespace

Tool program_tool() {
  return {.verb = "program",
          .add = add_program,
          .forms = {{"",
                     "",
                     {" --annotations --drill --fresh-processes --hook-error --hook-owed --html "
                      "--json --junit --limit --local-batch-norm --no-drill --pretend-gpus "
                      "--quiet --seed --spawns --world-sizes "}}},
          .schema = {"--program", "Of what verify -- COMMAND --json writes", program_schema_text},
          .further_schemas = {{"--program-scenario", "Of scenarios of programs",
                               program_scenario_schema_text},
                              {"--program-scenario-result",
                               "Of what verify of such files --json writes",
                               [] { return std::string(program_scenarios_schema_text()); }}},
          .scenarios = {is_program_scenario, execute_program_scenarios, sweep_program_scenario,
                        check_program_scenarios, list_program_scenarios}};
}

}  // namespace lockstep
