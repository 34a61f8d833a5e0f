#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "scenarios/json/schema.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/report/document.h"
#include "sim/tools/program/launch.h"
#include "sim/tools/program/places.h"
#include "sim/tools/program/result.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct ProgramOptions {
  std::vector<int64_t> worlds = {2};
  std::vector<std::string> command;
  bool spawns = false, quiet = false, fresh_processes = false;
  double limit_s = 120;
  std::string json;
  CiOptions ci;
};

struct Recorded {
  std::vector<ProgramRank> ranks;
  std::string why;  // there is nothing to judge
  int signal = 0;
};

// What ranks left of a run that did not end well.
Recorded with_broken_off(Recorded found, const std::string& folder, int64_t world) {
  for (int64_t rank = 0; rank < world; ++rank) {
    auto read = read_program_rank(fmt::format("{}/rank-{}.jsonl", folder, rank));
    if (read) found.ranks.push_back(std::move(read.value()));
  }
  return found;
}

// What the runs of one verdict share.
struct Session {
  const ProgramOptions& options;
  std::string scratch;
  ProgramZygotes* zygotes;  // or none
  Signals* signals;
};

Recorded record(const Session& session, const std::string& folder, int64_t world, int64_t scale) {
  const ProgramOptions& options = session.options;
  std::error_code error;
  fs::create_directory(folder, error);
  Recorded found;
  const ProgramEnd end = run_program({.command = options.command,
                                      .folder = folder,
                                      .agent = program_agent_folder(),
                                      .world = world,
                                      .scale = scale,
                                      .spawns = options.spawns,
                                      .limit_s = options.limit_s,
                                      .zygotes = session.zygotes},
                                     session.signals);
  found.why = end.why;
  found.signal = end.signal;
  if (!found.why.empty()) return with_broken_off(std::move(found), folder, world);
  for (int64_t rank = 0; rank < world && found.why.empty(); ++rank) {
    const std::string path = fmt::format("{}/rank-{}.jsonl", folder, rank);
    if (!fs::exists(path, error)) {
      found.why = fmt::format("rank {} of {} ran no backward and no optimizer step", rank, world);
      break;
    }
    auto read = read_program_rank(path);
    if (!read)
      found.why = to_text(read.errors()[0]);
    else if (read.value().rank != rank || read.value().world != world)
      found.why = fmt::format(
          "the program ran {} ranks where {} were asked for; does it take its "
          "number of ranks from elsewhere?",
          read.value().world, world);
    else
      found.ranks.push_back(std::move(read.value()));
  }
  return found;
}

bool buffers_differ(const std::vector<ProgramRank>& ranks) {
  for (const ProgramRank& rank : ranks)
    for (size_t i = 0; i < std::min(rank.steps.size(), ranks[0].steps.size()); ++i)
      if (rank.steps[i].buffer_hash != ranks[0].steps[i].buffer_hash) return true;
  return false;
}

// Several ranks, then one device. Its signal, where one came.
int judge_world(const Session& session, ProgramWorld* found) {
  const int64_t world = found->world_size;
  const std::string folder = fmt::format("{}/{}", session.scratch, world);
  const Recorded several = record(session, folder, world, 1);
  found->not_run = several.why;
  if (several.signal == 0 && !several.why.empty()) {
    const ProgramFinding cause = judge_broken_off(several.ranks);
    if (cause.cause != ProgramCause::none)
      found->lanes.push_back({ProgramLaneKind::replica, cause, false});
  }
  if (several.signal != 0 || !several.why.empty()) return several.signal;
  found->lanes.push_back({ProgramLaneKind::replica, judge_replicas(several.ranks),
                          replica_control_fails(several.ranks)});
  found->replay = replay_program(folder, world);
  if (found->replay.finding)
    found->lanes.push_back(
        {ProgramLaneKind::replay, *found->replay.finding, found->replay.control_failed});
  found->buffers_differ = buffers_differ(several.ranks);
  found->dropout_off = several.ranks[0].dropout;
  const Recorded one = record(session, folder + "-one", 1, world);
  if (!one.why.empty()) found->not_run = "on one device, " + one.why;
  if (one.signal != 0 || !one.why.empty()) return one.signal;
  found->lanes.push_back({ProgramLaneKind::float64, judge_one_device(several.ranks, one.ranks[0]),
                          one_device_control_fails(several.ranks, one.ranks[0])});
  return 0;
}

// On a terminal alone, since a world size may take minutes.
void say_progress(const ProgramOptions& options, int64_t world) {
  if (!options.quiet && ::isatty(STDERR_FILENO) != 0)
    print_error(fmt::format("{} on {} ranks ...\n", options.command[0], world));
}

int verify_program(const ProgramOptions& options) {
  InputErrors errors = ci_errors(options.ci);
  check_output("--json", options.json, &errors);
  if (program_agent_folder().empty())
    errors.push_back(option_error("the agent's folder python/lockstep is not beside this program"));
  const ProgramScratch scratch;
  if (scratch.path.empty())
    errors.push_back(option_error("cannot make a folder for temporary files"));
  if (!errors.empty()) return bad_input(errors, options.json, options.ci);
  ProgramResult result;
  result.command = options.command;
  Signals signals;
  std::unique_ptr<ProgramZygotes> zygotes;
  if (!options.fresh_processes && !options.spawns)
    zygotes =
        std::make_unique<ProgramZygotes>(options.command, program_agent_folder(), scratch.path);
  const Session session{options, scratch.path, zygotes.get(), &signals};
  for (const int64_t world : options.worlds) {
    say_progress(options, world);
    const auto begin = std::chrono::steady_clock::now();
    ProgramWorld& found = result.worlds.emplace_back();
    found.world_size = world;
    result.signal = judge_world(session, &found);
    found.duration_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (result.signal != 0) break;
  }
  if (zygotes) result.why_fresh = zygotes->why_fresh();
  result.forked = zygotes && zygotes->fork();
  int code = write_output("--json", options.json, exit_code_of(result),
                          [&] { return to_text(as_json(result)); });
  code = leave_ci_reports(options.ci, test_report(result), code);
  return print_result(program_text(result, options.quiet), code);
}

void add_program(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<ProgramOptions>();
  CLI::App* verb = app.add_subcommand(
      "program", "Judge a PyTorch training of your own, as it is: verify [options] -- COMMAND.");
  verb->add_option("COMMAND", options->command, "What starts the training")
      ->required()
      ->option_text("COMMAND ...");
  verb->add_option("--world-sizes", options->worlds, "How many ranks, one after another (2)")
      ->delimiter(',')
      ->option_text("W,...")
      ->allow_extra_args(false)
      ->check(between(int64_t{2}, int64_t{64}));
  verb->add_flag("--spawns", options->spawns, "COMMAND starts its ranks itself (mp.spawn)");
  verb->add_flag("--fresh-processes", options->fresh_processes,
                 "Start a Python for each rank, instead of forking it");
  verb->add_option("--limit", options->limit_s, "Seconds that one run may take (120)")
      ->option_text("S")
      ->check(between(1.0, 86'400.0));
  verb->add_option("--json", options->json,
                   "Write the result as JSON (see lockstep schema --program)")
      ->option_text("FILE")
      ->group("Output");
  add_ci(verb, &options->ci);
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
  verb->footer(R"(Examples, from the root of the repository
  lockstep verify --world-sizes 2,3 -- python3 examples/toy_ddp.py
  lockstep verify --spawns -- python3 examples/spawned.py
  lockstep program --world-sizes 2 -- python3 examples/toy_ddp.py --bug summed_loss

Exit codes
  0      the training on several ranks is that of one device
  1      it is not
  2      bad input
  3      inconclusive: it could not be run, or not be compared
  128+n  interrupted by signal n)");
  verb->callback([=] { *action = [=] { return verify_program(*options); }; });
}

}  // namespace

Tool program_tool() {
  return {.verb = "program",
          .add = add_program,
          .forms = {{"",
                     "",
                     {" --annotations --fresh-processes --json --junit --limit --quiet --spawns "
                      "--world-sizes "}}},
          .schema = {"--program", "Of what verify -- COMMAND --json writes", program_schema_text}};
}

}  // namespace lockstep
