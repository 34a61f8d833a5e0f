#include "sim/program/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <new>
#include <system_error>

#include "scenarios/base/text.h"
#include "scenarios/json/schema.h"
#include "scenarios/scenario_schema.h"
#include "sim/cli/analyze.h"
#include "sim/cli/hosts.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/simulate.h"
#include "sim/cli/verbs.h"
#include "sim/plan/plans.h"
#include "sim/program/command_line.h"
#include "sim/program/help.h"
#include "sim/program/option_tree.h"
#include "sim/report/analyze_document.h"
#include "sim/report/document.h"
#include "sim/report/folded_text.h"
#include "sim/report/machine.h"
#include "sim/report/moving_line.h"
#ifdef LOCKSTEP_TOOLS
#include "sim/tools/tools.h"
#endif

namespace lockstep {

void open_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one. Each is opened the wrong way round: reading or writing
    // fails, as it should.
    const int opened = ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != fd) ::close(opened);
  }
}

namespace {

// verify and run do the same and say different things.
void add_execution(CLI::App* verb, const std::shared_ptr<HostsOptions>& remote,
                   std::function<int()>* action) {
  const std::shared_ptr<VerifyOptions> options(remote, &remote->verify);
  add_selection(verb, &options->selection, true);
  add_trust_programs(verb, &options->selection);
  add_narrowing(verb, options.get(), true);
  verb->add_flag("--list", options->list, "List the scenarios and their runs without running them")
      ->group("Which runs");
  add_output(verb, options.get());
  verb->add_option("--markdown", options->markdown, "Write the tables as Markdown")
      ->option_text("FILE")
      ->group("Output");
  verb->add_option("--export", options->export_dir,
                   "Write weights, data, order and settings of each run there, as .npy and JSON")
      ->option_text("FOLDER")
      ->group("Output");
  add_how(verb, options.get());
  add_hosts(verb, remote.get());
  verb->add_option("--save-weights", options->save_weights,
                   "Rank 0's weights at the end of one run: .safetensors, .pt")
      ->option_text("FILE")
      ->excludes(verb->get_option("--hosts"))
      ->group("Output");
  add_trace(verb, &options->trace);
  add_html(verb, &options->html);
  for (const char* name :
       {"--html", "--trace", "--shard", "--last-failed", "--baseline", "--fail-fast"})
    verb->get_option(name)->excludes(verb->get_option("--hosts"));  // one run, judged by its host
  verb->callback([=] {
    *action = [=] {
      if (const Tool* tool = tool_of_scenarios(options->selection.paths))
        return tool->scenarios.execute(*options);
      return remote->hosts.empty() ? verify(*options) : verify_on_hosts(*remote);
    };
  });
}

void add_verify(CLI::App& app, std::function<int()>* action) {
  CLI::App* verb = app.add_subcommand(
      "verify", "Judge whether training on several ranks gives the weights of one device.");
  add_execution(verb, std::make_shared<HostsOptions>(), action);
  verb->footer(footer(R"(  lockstep verify scenarios/equivalence
  lockstep verify scenarios/equivalence/mlp_matrix.json --set /world_size=3 --json result.json
  lockstep verify scenarios --list
  lockstep verify scenarios/equivalence --shard 1/4 --fail-fast --junit junit.xml
  lockstep verify scenarios/equivalence --last-failed
  lockstep verify scenarios/mutants --markdown kills.md
  lockstep verify -- python3 train.py    (a PyTorch script of your own: lockstep program --help)
  lockstep verify examples/scenarios     (the same as files, with what is expected)
)"));
}

void add_run(CLI::App& app, std::function<int()>* action) {
  CLI::App* verb = app.add_subcommand(
      "run", "Run scenarios with faults; say what happened, which rank is to blame, and why.");
  auto options = std::make_shared<HostsOptions>();
  options->verify.explain = true;
  add_execution(verb, options, action);
  verb->footer(footer(R"(  lockstep run scenarios/faults/stop_in_backward.json
  lockstep run scenarios/faults --filter world_size=3 --junit junit.xml
  lockstep run scenarios/equivalence/toy_model.json \
    --set '/faults=[{"kind": "kill", "rank": 2, "step": 3}]'
  lockstep run -- python3 train.py    (a PyTorch script of your own: lockstep program-run --help)
  lockstep run scenarios/faults/deadlock.json --filter world_size=3 \
    --trace dumps/ --trace-kind flight_recorder
)"));
}

// Nothing is run and nothing judged.
std::string scenario_footer(const std::string& examples) {
  return "Examples, from the root of the repository\n" + examples + R"(
Exit codes
  0      nothing is wrong with these files
  2      bad input, or the output could not be written
  4      nothing was selected (explain))";
}

void add_scenario(CLI::App& app, std::function<int()>* action) {
  CLI::App* group = app.add_subcommand("scenario", "Inspect scenario files without running them.");
  group->require_subcommand(1);
  group->footer(scenario_footer(R"(  lockstep scenario check scenarios
  lockstep scenario list scenarios/equivalence
  lockstep scenario explain scenarios/equivalence/linear_manual_split.json
)"));
  using OfTool = decltype(Tool::Scenarios::check);
  const auto add = [&](const char* name, const char* what, int (*run)(const Selection&),
                       const char* examples, OfTool Tool::Scenarios::*of_programs = nullptr) {
    auto selection = std::make_shared<Selection>();
    CLI::App* verb = group->add_subcommand(name, what);
    add_selection(verb, selection.get(), run != scenario_check);
    verb->footer(scenario_footer(examples));
    verb->callback([=] {
      *action = [=] {
        const Tool* tool = of_programs == nullptr ? nullptr : tool_of_scenarios(selection->paths);
        return tool == nullptr ? run(*selection) : (tool->scenarios.*of_programs)(*selection);
      };
    });
  };
  add("check", "Check scenario files: keys, types, ranges, what cannot be.", scenario_check,
      R"(  lockstep scenario check scenarios
  lockstep scenario check scenarios/equivalence/mlp_matrix.json
  lockstep scenario check scenarios/equivalence/toy_model.json --set /world_size=2
)",
      &Tool::Scenarios::check);
  add("list", "Name scenarios, how many runs each has, and what it is for.", scenario_list,
      R"(  lockstep scenario list scenarios
  lockstep scenario list scenarios/negative
  lockstep scenario list scenarios/equivalence --filter world_size=3
)",
      &Tool::Scenarios::list);
  add("explain", "Print the plan as JSON: every choice made (an array for several runs).",
      scenario_explain,
      R"(  lockstep scenario explain scenarios/equivalence/linear_manual_split.json
  lockstep scenario explain scenarios/equivalence/toy_model.json --set /steps=2 --seed 7
  lockstep scenario explain scenarios/equivalence/exact.json --filter world_size=3
)");
}

void add_data(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<DataOptions>();
  CLI::App* verb = app.add_subcommand(
      "data", "Write small made-up images as the files of MNIST or CIFAR-10; print their names.");
  verb->add_option("SET", options->kind, "Which set's files")
      ->required()
      ->option_text("mnist|cifar10")
      ->check(CLI::IsMember({"mnist", "cifar10"}));
  verb->add_option("FOLDER", options->folder, "For the files; nothing is written over")->required();
  verb->add_option("--samples", options->samples, "For training (600); a sixth as many for test")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{1'000'000}));
  verb->add_option("--seed", options->seed, "Number that the images derive from (0)")
      ->option_text("N")
      ->check(between(uint64_t{0}, uint64_t{1} << 53));
  verb->footer(footer_of_writer(R"(  lockstep data mnist mnist
  lockstep data cifar10 cifar10 --samples 100 --seed 3
  lockstep verify scenarios/data/mnist.json --set /data/path=$PWD/mnist
)"));
  verb->callback([=] { *action = [=] { return write_data(*options); }; });
}

void add_profile(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* verb = app.add_subcommand(
      "profile", "Measure each layer of a scenario's model on one core, for emulated compute.");
  add_selection(verb, &options->selection, true);
  verb->add_option("--out", options->out, "File for the times")->required()->option_text("FILE");
  verb->add_option("--repetitions", options->repetitions, "Passes; the median counts (11)")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{10'000}));
  verb->footer(
      footer_of_writer(R"(  lockstep profile scenarios/equivalence/toy_model.json --out toy.profile
  lockstep profile scenarios/gallery/resnet50.json --filter bucketed --out resnet50.profile
  lockstep profile scenarios/equivalence/toy_model.json --repetitions 99 --out toy.profile
)"));
  verb->callback([=] { *action = [=] { return profile(*options); }; });
}

// Of the tool that reads what was given to `analyze`.
std::string other_command(const std::string& path) {
  for (const Tool& tool : tools())
    if (tool.reads != nullptr && tool.reads(path))
      return fmt::format("lockstep {} {}", tool.verb, shell_word(path));
  return "";
}

void add_others(CLI::App& app, std::function<int()>* action) {
  CLI::App* schema = app.add_subcommand("schema", "Print the JSON Schema of scenario files.");
  using Text = std::function<std::string()>;
  auto text = std::make_shared<Text>(scenario_schema_text);
  CLI::Option_group* other = schema->add_option_group("Another schema instead");
  const auto add = [&](const char* flag, const char* what, const Text& of) {
    other->add_flag_callback(
        flag, [=] { *text = of; }, what);
  };
  add("--result", "Of results (--json)", result_schema_text);
  add("--sweep", "Of what sweep --json writes", sweep_schema_text);
  add("--what-if", "Of what whatif, or analyze of a trace, writes", what_if_schema_text);
  add("--recording", "Of what analyze of a recording writes", recorded_analysis_schema);
  add("--machine", "Of machine files, for simulate", machine_schema_text);
  add("--table", "Of published step times, for calibrate --table", table_schema_text);
  add("--simulate", "Of what simulate --json writes", simulate_schema_text);
  for (const Tool& tool : tools()) {
    if (tool.schema.flag != nullptr) add(tool.schema.flag, tool.schema.what, tool.schema.text);
    for (const auto& [flag, what, of] : tool.further_schemas) add(flag, what, of);
  }
  other->require_option(0, 1);
  schema->footer(footer_of_writer(R"(  lockstep schema
  lockstep schema --result
  lockstep schema > scenario_schema.json
)"));
  schema->callback([=] { *action = [=] { return print_result((*text)(), kExitPass); }; });
  CLI::App* doctor_verb =
      app.add_subcommand("doctor", "Say what this machine can do, and what is missing.");
  doctor_verb->footer(R"(Examples, from the root of the repository
  lockstep doctor
  lockstep doctor && lockstep verify scenarios/equivalence
  lockstep doctor > machine.txt

Exit codes
  0      this machine can verify
  1      something that is needed is missing
  2      bad options, or the output could not be written)");
  doctor_verb->callback([=] { *action = doctor; });
  CLI::App* version_verb =
      app.add_subcommand("version", "Print versions of lockstep and libraries.");
  version_verb->footer(footer_of_writer(R"(  lockstep version
  lockstep --version
  lockstep version > version.txt
)"));
  version_verb->callback([=] { *action = version; });
}

// Both are made from the parser itself.
void add_made_from_options(CLI::App& app, std::function<int()>* action) {
  CLI::App* completion =
      app.add_subcommand("completion", "Print shell completions for verbs and options.");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "Which shell")
      ->required()
      ->option_text("bash|zsh|fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(footer_of_writer(R"(  source <(lockstep completion bash)
  lockstep completion zsh > ~/.zfunc/_lockstep
  lockstep completion fish > ~/.config/fish/completions/lockstep.fish
)"));
  completion->callback([&app, shell, action] {
    *action = [&app, shell] {
      const VerbWords words = words_of(app);
      return print_result(*shell == "bash"  ? bash_completion(words)
                          : *shell == "zsh" ? zsh_completion(words)
                                            : fish_completion(words),
                          kExitPass);
    };
  });
  CLI::App* man = app.add_subcommand("man", "Print the man page lockstep(1).");
  man->footer(footer_of_writer(R"(  lockstep man > lockstep.1
  lockstep man | man -l -
  lockstep man | gzip > ~/.local/share/man/man1/lockstep.1.gz
)"));
  man->callback([&app, action] {
    *action = [&app] {
      return print_result(man_page(words_of(app), lockstep_version()), kExitPass);
    };
  });
}

// An empty value would be taken for an option that is absent, and "--quiet=false" for one given.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_name() == "COMMAND") continue;  // of a program of somebody else's
    if (option->get_expected_max() == 0)
      option->check(CLI::Validator(
          [](const std::string& text) { return text == "true" ? "" : "takes no value"; }, ""));
    else
      option->check(CLI::Validator(
          [](const std::string& text) { return text.empty() ? "an empty value" : ""; }, ""));
  }
  for (CLI::App* below : app.get_subcommands([](CLI::App*) { return true; }))
    refuse_empty_values(*below);
}

#ifdef LOCKSTEP_TOOLS
bool is_about_program(int argc, char** argv, const char* verb) {
  if (argc < 3 || std::string(argv[1]) != verb) return false;
  for (int i = 2; i + 1 < argc; ++i)
    if (std::string(argv[i]) == "--") return !std::string(argv[i + 1]).ends_with(".json");
  return false;
}
#endif

// `lockstep help VERB` is `lockstep VERB --help`; a verb that is none is refused like any other.
std::vector<char*> help_asked_for(const CLI::App& app, int argc, char** argv) {
  static char option[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  if (argc < 2 || std::string(argv[1]) != "help") return words;
  words.erase(words.begin() + 1);
  const auto named = [&](const CLI::App* verb) { return argc > 2 && verb->get_name() == argv[2]; };
  if (argc == 2 || !app.get_subcommands(named).empty()) words.push_back(option);
  return words;
}

// Of a form that starts a program, the words behind "--" as they are.
std::vector<std::string> words_to_parse(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  const std::string verb = argc > 1 ? words[1] : "";
  if (verb != "program" && !verb.starts_with("program-")) return words;
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes != words.end()) std::transform(dashes + 1, words.end(), dashes + 1, as_verbatim);
  return words;
}

int parse(CLI::App& app, int argc, char** argv, std::function<int()>* action) {
  const auto refuse = [&](const InputErrors& errors) {
    CiOptions ci;
    ci.junit = answer_file(argc, argv, "--junit");
    if (argument(argc, argv, "--annotations") == "none") ci.annotations = "none";
    return bad_input(errors, answer_file(argc, argv, "--json"), ci);
  };
  try {
    std::vector<std::string> words = words_to_parse(argc, argv);
    std::vector<char*> given;
    for (std::string& word : words) given.push_back(word.data());
    app.parse(argc, given.data());
    const InputErrors errors = command_line_errors(app);
    return errors.empty() ? -1 : refuse(errors);
  } catch (const CLI::CallForHelp&) {
    const std::string help = innermost(app).help(parent_name(app));
    const bool folds = ::isatty(STDOUT_FILENO) == 1;
    return print_result(folds ? folded_help(help, columns_of(STDOUT_FILENO)) : help, 0);
  } catch (const CLI::CallForVersion&) {
    *action = version;
    return -1;
  } catch (const CLI::ParseError& error) {
    InputError bad;
    bad.message = explain(app, error) + fmt::format(" (see {} --help)", full_name(app));
    return refuse({bad});
  }
}

}  // namespace

const std::vector<Tool>& tools() {
#ifdef LOCKSTEP_TOOLS
  static const std::vector<Tool> all = {
      campaign_tool(), calibrate_tool(),   collective_tool(),    explore_tool(),
      soak_tool(),     whatif_tool(),      compare_tool(),       explain_tool(),
      program_tool(),  program_run_tool(), program_sweep_tool(), program_analyze_tool()};
#else
  static const std::vector<Tool> all;
#endif
  return all;
}

const Tool* tool_of_scenarios(const std::vector<std::string>& paths) {
  for (const Tool& tool : tools())
    if (tool.scenarios.has != nullptr &&
        std::any_of(paths.begin(), paths.end(), tool.scenarios.has))
      return &tool;
  return nullptr;
}

void build_command_line(CLI::App& app, std::function<int()>* action) {
  app.require_subcommand(1);
  app.formatter(own_help());
  app.set_help_flag("-h,--help", "Print this help");
  add_verify(app, action);
  add_run(app, action);
  add_sweep(app, action, [](const SweepOptions& options) {
    const Tool* tool = tool_of_scenarios(options.selection.paths);
    return tool == nullptr ? sweep(options) : tool->scenarios.sweep(options);
  });
  add_simulate(app, action);
  add_analyze(app, action, other_command);
  for (const Tool& tool : tools()) tool.add(app, action);
  add_scenario(app, action);
  add_data(app, action);
  add_profile(app, action);
  add_others(app, action);
  add_worker(app, action);
  add_made_from_options(app, action);
  app.add_flag_callback(
      "--version", [] { throw CLI::CallForVersion("", 0); },
      "Print versions of lockstep and libraries");
  app.footer(footer(R"(  lockstep verify scenarios/equivalence
  lockstep scenario explain scenarios/equivalence/linear_manual_split.json
  lockstep doctor
)"));
  refuse_empty_values(app);
}

int run_cli(int argc, char** argv) try {
  open_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error that we report
  std::signal(SIGXFSZ, SIG_IGN);  // and so is a limit of file size
  const std::string first = argc > 2 ? argv[2] : "";
  const bool internal = first == "--task" || first == "--zygote" || first == "--libraries";
  if (argc > 1 && std::string(argv[1]) == "worker" && internal)
    return exec_worker(std::vector<std::string>(argv + 2, argv + argc));
#ifdef LOCKSTEP_TOOLS
  // `verify [options] -- COMMAND`, run, sweep and analyze are about a program, not about scenario
  // files.
  static char program_verb[] = "program", run_verb[] = "program-run",
              sweep_verb[] = "program-sweep", analyze_verb[] = "program-analyze";
  if (is_about_program(argc, argv, "verify")) argv[1] = program_verb;
  if (is_about_program(argc, argv, "run")) argv[1] = run_verb;
  if (is_about_program(argc, argv, "sweep")) argv[1] = sweep_verb;
  if (is_about_program(argc, argv, "analyze")) argv[1] = analyze_verb;
#endif
  std::function<int()> action;
  CLI::App app("Is data-parallel training right? Real processes, real Gloo, a verdict.",
               "lockstep");
  build_command_line(app, &action);
  std::vector<char*> words = help_asked_for(app, argc, argv);
  const int code = parse(app, static_cast<int>(words.size()), words.data(), &action);
  if (code >= 0) return code;
  return action();
} catch (const std::bad_alloc&) {
  print_error(
      "lockstep: error: there is not enough memory (see ulimit -v, and the limits of the "
      "container); exit 2\n");
  return kExitBadInput;
} catch (const std::system_error& error) {  // of the machine, where nobody nearer knew what to say
  print_error(fmt::format("lockstep: error: {}; exit {}\n", error.what(), kExitInconclusive));
  return kExitInconclusive;
}

}  // namespace lockstep
