#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <memory>

#include "sim/cli/shared_options.h"
#include "sim/report/terminal.h"
#include "sim/tools/program/judge.h"
#include "sim/tools/program/launch.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct ProgramOptions {
  std::vector<int64_t> worlds = {2};
  std::vector<std::string> command;
  bool spawns = false;
  double limit_s = 120;
};

// Gone with everything in it, however this ends.
struct Scratch {
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-program-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path;
};

// LOCKSTEP_PYTHON, or of the source tree that this program was built in, or as it is installed;
// nowhere else, for it is code that will run. Empty: nowhere.
std::string agent_folder() {
  const char* given = ::getenv("LOCKSTEP_PYTHON");
  if (given != nullptr) return std::string(given) + "/lockstep/site";
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* python : {"../../../python", "../share/lockstep/python"}) {
    const fs::path site = (folder / python / "lockstep/site").lexically_normal();
    if (fs::exists(site / "sitecustomize.py", error)) return site.string();
  }
  return "";
}

struct Recorded {
  std::vector<ProgramRank> ranks;
  std::string why;  // there is nothing to judge
  int signal = 0;
};

Recorded record(const ProgramOptions& options, const std::string& folder, int64_t world,
                int64_t scale, Signals* signals) {
  std::error_code error;
  fs::create_directory(folder, error);
  Recorded found;
  const ProgramEnd end = run_program(
      {options.command, folder, agent_folder(), world, scale, options.spawns, options.limit_s},
      signals);
  found.why = end.why;
  found.signal = end.signal;
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

std::string finding_text(const char* lane, const ProgramFinding& found, bool control) {
  if (!control && found.verdict == ProgramVerdict::pass)
    return fmt::format("  lane {:8} void: its control did not fail\n", lane);
  std::string text = fmt::format("  lane {:8} {}", lane, name_of(found.verdict));
  if (found.verdict == ProgramVerdict::pass) {
    text += fmt::format(": {} steps; control failed, as it must", found.steps);
    if (found.worst > 0) text += fmt::format("; worst distance {:.2g}", found.worst);
    if (found.skipped > 0)
      text += fmt::format("; {} parameters not compared (no gradient)", found.skipped);
  } else if (found.verdict == ProgramVerdict::fail) {
    text +=
        found.step > 0 ? fmt::format(": step {}, {}", found.step, found.entry) : ": " + found.entry;
    text += fmt::format("\n      cause {}: {}", name_of(found.cause), found.words);
    if (!found.line.empty()) text += fmt::format("\n      at {}", found.line);
  } else {
    text += ": " + found.words;
  }
  return text + "\n";
}

bool buffers_differ(const std::vector<ProgramRank>& ranks) {
  for (const ProgramRank& rank : ranks)
    for (size_t i = 0; i < std::min(rank.steps.size(), ranks[0].steps.size()); ++i)
      if (rank.steps[i].buffer_hash != ranks[0].steps[i].buffer_hash) return true;
  return false;
}

int code_of(const ProgramFinding& found, bool control) {
  if (found.verdict == ProgramVerdict::fail) return kExitFail;
  return found.verdict == ProgramVerdict::pass && control ? kExitPass : kExitInconclusive;
}

// A failure of any lane outweighs what could not be judged, and that a pass.
int worse(int a, int b) {
  if (b >= 128) return b;
  if (a == kExitFail || b == kExitFail) return kExitFail;
  return std::max(a, b);
}

// The exit code; of a signal at once.
int judge_world(const ProgramOptions& options, const std::string& scratch, int64_t world,
                Signals* signals, std::string* text) {
  *text += fmt::format("{} ranks\n", world);
  const Recorded several = record(options, fmt::format("{}/{}", scratch, world), world, 1, signals);
  if (several.signal != 0) return 128 + several.signal;
  if (!several.why.empty()) {
    *text += "  inconclusive: " + several.why + "\n";
    return kExitInconclusive;
  }
  const ProgramFinding replicas = judge_replicas(several.ranks);
  const bool control = replica_control_fails(several.ranks);
  *text += finding_text("replica", replicas, control);
  const int code = code_of(replicas, control);
  const Recorded one = record(options, fmt::format("{}/{}-one", scratch, world), 1, world, signals);
  if (one.signal != 0) return 128 + one.signal;
  if (!one.why.empty()) {
    *text += "  lane float64  inconclusive: on one device, " + one.why + "\n";
    return worse(code, kExitInconclusive);
  }
  const ProgramFinding found = judge_one_device(several.ranks, one.ranks[0]);
  const bool fails = one_device_control_fails(several.ranks, one.ranks[0]);
  *text += finding_text("float64", found, fails);
  if (buffers_differ(several.ranks))
    *text +=
        "  note: buffers differ between ranks after a step (running statistics?); they are not "
        "judged\n";
  if (several.ranks[0].dropout) *text += "  note: dropout was off, for its draws differ\n";
  return worse(code, code_of(found, fails));
}

int verify_program(const ProgramOptions& options) {
  if (agent_folder().empty())
    return bad_input(
        {option_error("the agent's folder python/lockstep is not beside this program")});
  const Scratch scratch;
  if (scratch.path.empty())
    return bad_input({option_error("cannot make a folder for temporary files")});
  std::string text;
  int code = kExitPass;
  Signals signals;
  for (const int64_t world : options.worlds) {
    code = worse(code, judge_world(options, scratch.path, world, &signals, &text));
    if (code >= 128) return print_result(text + "\ninterrupted\n", code);
  }
  const char* word = code == kExitPass ? "pass" : code == kExitFail ? "fail" : "inconclusive";
  text += fmt::format("\n{}{}\n", word, code == kExitPass ? "" : fmt::format("; exit {}", code));
  return print_result(text, code);
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
  verb->add_option("--limit", options->limit_s, "Seconds that one run may take (120)")
      ->option_text("S")
      ->check(between(1.0, 86'400.0));
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
          .forms = {{"", "", {" --limit --spawns --world-sizes "}}}};
}

}  // namespace lockstep
