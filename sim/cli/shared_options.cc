#include "sim/cli/shared_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/base/text.h"
#include "sim/cli/select.h"

namespace lockstep {
namespace {

constexpr const char* kExamples = "Examples, from the root of the repository\n";
constexpr const char* kExitCodes = R"(
Exit codes
  0      every run did what its scenario expects
  1      a run did not
  2      bad input, or an output could not be written; nothing was concluded
  3      inconclusive: a run broke down, or a lane could not decide
  4      nothing was selected
  128+n  interrupted by signal n)";

std::string refusal_of(const InputError& error) {
  return printable(error.message) + (error.allowed.empty() ? "" : "; expected " + error.allowed);
}

}  // namespace

std::string footer(const std::string& examples) { return kExamples + examples + kExitCodes; }

std::string footer_of_writer(const std::string& examples) {
  return kExamples + examples + R"(
Exit codes
  0      written
  2      bad input, or an output could not be written)";
}

void add_selection(CLI::App* verb, Selection* selection, bool filter) {
  verb->add_option("FILE", selection->paths, "Scenario files, or folders of them")
      ->required()
      ->option_text("FILE|FOLDER ...");
  verb->add_option(
          "--set", selection->sets,
          "Change a value of the scenario; pins an axis; repeatable, the last one for a key wins")
      ->option_text("/POINTER=VALUE")
      ->allow_extra_args(false)
      ->group("Which runs");
  verb->add_option_function<std::string>(
          "--device",
          [selection](const std::string& device) {
            selection->sets.push_back("/device=" + device);
          },
          "Where the ranks compute: cpu, cuda, or auto; as --set /device=DEVICE")
      ->option_text("DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda", "auto", "fake", "stand_in"}))
      ->group("Which runs");
  verb->add_option("--seed", selection->seed, "Number that all randomness derives from")
      ->option_text("N")
      ->check(between(uint64_t{0}, uint64_t{1} << 53))
      ->group("Which runs");
  verb->add_flag("--full", selection->full, "The long form of scenarios that have one")
      ->group("Which runs");
  verb->add_option("--data", selection->data_dir,
                   "Real MNIST or CIFAR-10 files instead of made-up ones")
      ->option_text("FOLDER")
      ->group("Which runs");
  verb->add_option("--trust-model", selection->trusted_models,
                   "Let a scenario load this TorchScript file, which runs its code; repeatable")
      ->option_text("FILE")
      ->allow_extra_args(false)
      ->group("Which runs");
  if (filter)
    verb->add_option("--filter", selection->filter,
                     "Only runs whose name or axis values contain this text")
        ->option_text("TEXT")
        ->group("Which runs");
}

void add_trust_programs(CLI::App* verb, Selection* selection) {
  verb->add_flag("--trust-programs", selection->trusts_programs,
                 "Let scenarios of programs run their commands")
      ->group("Which runs");
}

void add_output(CLI::App* verb, VerifyOptions* options) {
  verb->add_option("--json", options->json,
                   "Write the result as JSON (see lockstep schema --result)")
      ->option_text("FILE")
      ->group("Output");
  add_ci(verb, &options->ci);
  verb->add_option("--out", options->out, "Run directory for the evidence of this invocation")
      ->option_text("FOLDER")
      ->group("Output");
  verb->add_flag("--keep", options->keep, "Keep the evidence of runs as expected too")
      ->group("Output");
  verb->add_flag("--metrics", options->metrics,
                 "Measure every run: a table, and all intervals in --json")
      ->group("Output");
  verb->add_option("--color", options->color, "When to colour verdicts")
      ->option_text("auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("Output");
  auto* quiet = verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
  verb->add_flag("-v,--verbose", options->verbose, "A line for every run, every failure in full")
      ->excludes(quiet)
      ->group("Output");
}

void add_json_and_color(CLI::App* verb, std::string* json, std::string* color) {
  verb->add_option("--json", *json, "Write the result as JSON")
      ->option_text("FILE")
      ->group("Output");
  verb->add_option("--color", *color, "When to colour verdicts")
      ->option_text("auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("Output");
}

void add_html(CLI::App* verb, std::string* html) {
  verb->add_option("--html", *html,
                   "Write a report for a browser: one file that needs no network (docs/html.md)")
      ->option_text("FILE")
      ->group("Output");
}

void add_trace(CLI::App* verb, TraceOptions* options) {
  auto* trace = verb->add_option("--trace", options->path,
                                 "Timeline for Perfetto, or of another --trace-kind; a folder "
                                 "gets a file of each rank")
                    ->option_text("FILE|FOLDER/")
                    ->group("Output");
  const std::vector<std::string> kinds = trace_kinds();
  verb->add_option("--trace-kind", options->kind,
                   "Format of the trace: for Perfetto, HTA, readers of PyTorch's dumps, simulators "
                   "(docs/traces.md)")
      ->option_text(fmt::format("{}", fmt::join(kinds, "|")))
      ->check(CLI::IsMember(kinds))
      ->needs(trace)
      ->group("Output");
}

void add_ci(CLI::App* verb, CiOptions* options) {
  verb->add_option("--junit", options->junit, "Write a JUnit report, one case a run")
      ->option_text("FILE")
      ->group("Output");
  verb->add_option("--annotations", options->annotations,
                   "Annotations and job summary of GitHub Actions (auto: where it runs)")
      ->option_text("auto|github|none")
      ->check(CLI::IsMember({"auto", "github", "none"}))
      ->group("Output");
}

namespace {
constexpr char kVerbatim = '\x1f';
}  // namespace

std::string as_verbatim(const std::string& word) { return kVerbatim + word; }

void add_started_program(CLI::App* verb, std::vector<std::string>* command, bool* spawns,
                         bool* pretends_gpus) {
  verb->add_option("COMMAND", *command, "What starts the training")
      ->required()
      ->option_text("COMMAND ...")
      ->transform(CLI::Validator(
          [](std::string& word) {
            if (word.starts_with(kVerbatim)) word.erase(0, 1);
            return std::string();
          },
          ""));
  verb->add_flag("--spawns", *spawns, "COMMAND starts its ranks itself (mp.spawn)");
  verb->add_flag("--pretend-gpus", *pretends_gpus,
                 "Let torch.cuda.is_available() say yes; the CPU does what is asked of CUDA");
}

void add_shard(CLI::App* verb, std::optional<Shard>* shard) {
  verb->add_option_function<std::string>(
          "--shard",
          [shard](const std::string& text) {
            auto part = parse_shard(text);
            if (!part) throw CLI::ValidationError(refusal_of(part.errors().front()));
            *shard = part.value();
          },
          "Only part I of N, for N machines: every run is in one part; auto: as a Slurm array, "
          "srun, "
          "mpirun or torchrun says")
      ->option_text("I/N|auto")
      ->group("Which runs");
}

void add_narrowing(CLI::App* verb, VerifyOptions* options, bool files) {
  add_shard(verb, &options->shard);
  if (!files) return;
  verb->add_flag("--last-failed", options->last_failed,
                 "Only runs that were not as expected the last time they ran")
      ->group("Which runs");
  verb->add_option(
          "--baseline", options->baseline,
          "--json of an earlier invocation: failures that it already has are known, and excused")
      ->option_text("FILE")
      ->group("Comparison");
}

void add_how(CLI::App* verb, VerifyOptions* options) {
  const CLI::Validator number = between(int64_t{1}, int64_t{1024});
  verb->add_option_function<std::string>(
          "--jobs",
          [options](const std::string& text) {
            options->jobs = text == "auto" ? 0 : std::stoll(text);
          },
          "Runs side by side (auto: as cores and memory allow)")
      ->check(CLI::Validator(
          [number](std::string& text) {
            const std::string why = text == "auto" ? "" : number(text);
            return why.empty() ? why : why + ", or auto";
          },
          ""))
      ->option_text("auto|N")
      ->group("How");
  verb->add_flag("--fail-fast", options->fail_fast,
                 "End with the first run that is not as expected")
      ->group("How");
  verb->add_flag("--fresh-processes", options->fresh_processes,
                 "Start every rank as a new process instead of forking it")
      ->group("How");
}

void add_hosts(CLI::App* verb, HostsOptions* options) {
  const char* group = "On several hosts";
  auto* hosts = verb->add_option("--hosts", options->hosts,
                                 "Start a worker on each of these; the first has rank 0")
                    ->option_text("H1,H2,...")
                    ->group(group);
  const auto add = [&](const char* name, auto* value, const char* what, const char* text) {
    return verb->add_option(name, *value, what)->option_text(text)->needs(hosts)->group(group);
  };
  add("--ranks-per-host", &options->ranks_per_host, "Ranks on each (1)", "N")
      ->check(between(int64_t{1}, int64_t{4096}));
  add("--remote-shell", &options->remote_shell, "Called as CMD HOST COMMAND (ssh)", "CMD");
  add("--master-port", &options->master_port, "Port that rank 0 opens (29500)", "PORT")
      ->check(between(int64_t{1}, int64_t{65535}));
  add("--interface", &options->interface, "Network interface of the ranks", "NAME");
}

}  // namespace lockstep
