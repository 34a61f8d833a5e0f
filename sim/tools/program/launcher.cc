#include "sim/tools/program/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "sim/tools/program/command.h"

namespace lockstep {
namespace {

enum class Launcher { torchrun, accelerate, fabric, other };
enum class Takes { nothing, value };
enum class Means { nothing, world, hosts, module, no_python, variable, refused };

struct Option {
  std::string_view name;  // with '-' for '_'
  Takes takes;
  Means means = Means::nothing;
  std::string_view variable = {};  // of Means::variable: NAME, or "NAME=value" of a flag
};

// Of torchrun and of accelerate, which is made of it. What means nothing to the ranks: logs,
// restarts, where agents meet.
constexpr std::array kCommon = {
    Option{"--module", Takes::nothing, Means::module},
    Option{"-m", Takes::nothing, Means::module},
    Option{"--no-python", Takes::nothing, Means::no_python},
    Option{"--max-restarts", Takes::value},
    Option{"--monitor-interval", Takes::value},
    Option{"--rdzv-backend", Takes::value},
    Option{"--rdzv-conf", Takes::value},
    Option{"--role", Takes::value},
    Option{"--log-dir", Takes::value},
};

constexpr std::array kTorchrun = {
    Option{"--nproc-per-node", Takes::value, Means::world},
    Option{"--nnodes", Takes::value, Means::hosts},
    Option{"--run-path", Takes::nothing, Means::refused},
    Option{"--virtual-local-rank", Takes::nothing, Means::refused},
    Option{"--standalone", Takes::nothing},
    Option{"--use-env", Takes::nothing},
    Option{"--print-completion", Takes::value, Means::refused},
    Option{"--rdzv-endpoint", Takes::value},
    Option{"--rdzv-id", Takes::value},
    Option{"--start-method", Takes::value},
    Option{"--event-log-handler", Takes::value},
    Option{"-r", Takes::value},
    Option{"--redirects", Takes::value},
    Option{"-t", Takes::value},
    Option{"--tee", Takes::value},
    Option{"--log-line-prefix-template", Takes::value},
    Option{"--local-ranks-filter", Takes::value},
    Option{"--duplicate-stdout-filters", Takes::value},
    Option{"--duplicate-stderr-filters", Takes::value},
    Option{"--node-rank", Takes::value},
    Option{"--master-addr", Takes::value},
    Option{"--master-port", Takes::value},
    Option{"--local-addr", Takes::value},
    Option{"--logs-specs", Takes::value},
    Option{"--numa-binding", Takes::value},
    Option{"--signals-to-handle", Takes::value},
    Option{"--shutdown-timeout", Takes::value},
};

constexpr std::array kAccelerate = {
    Option{"--num-processes", Takes::value, Means::world},
    Option{"--num-machines", Takes::value, Means::hosts},
    Option{"--mixed-precision", Takes::value, Means::variable, "ACCELERATE_MIXED_PRECISION"},
    Option{"--gradient-accumulation-steps", Takes::value, Means::variable,
           "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"},
    Option{"--cpu", Takes::nothing, Means::variable, "ACCELERATE_USE_CPU=true"},
    Option{"--use-cpu", Takes::nothing, Means::variable, "ACCELERATE_USE_CPU=true"},
    Option{"--multi-gpu", Takes::nothing},
    Option{"--machine-rank", Takes::value},
    Option{"--main-process-ip", Takes::value},
    Option{"--main-process-port", Takes::value},
    Option{"--num-cpu-threads-per-process", Takes::value, Means::variable, "OMP_NUM_THREADS"},
    Option{"--same-network", Takes::nothing},
    Option{"--quiet", Takes::nothing},
    Option{"-q", Takes::nothing},
    Option{"--gpu-ids", Takes::value},
};

// Of Lightning; how many devices there are, launch.cc says of each run.
constexpr std::array kFabric = {
    Option{"--devices", Takes::value, Means::world},
    Option{"--num-nodes", Takes::value, Means::hosts},
    Option{"--accelerator", Takes::value, Means::variable, "LT_ACCELERATOR"},
    Option{"--strategy", Takes::value, Means::variable, "LT_STRATEGY"},
    Option{"--precision", Takes::value, Means::variable, "LT_PRECISION"},
    Option{"--node-rank", Takes::value},
    Option{"--main-address", Takes::value},
    Option{"--main-port", Takes::value},
};

constexpr std::array<std::string_view, 6> kOthers = {"mpirun",    "mpiexec",    "srun",
                                                     "deepspeed", "horovodrun", "orterun"};

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Where the launcher's own options begin, and which Python would start the ranks.
struct Found {
  Launcher launcher = Launcher::torchrun;
  size_t options = 1;
  std::string python = {};
  bool gives_local_rank = false;  // as an option of the script's
};

constexpr int64_t kScriptBytesMost = 1 << 20;

// The program that runs a script: its first line says so; else one beside it.
std::string python_of(const std::string& program) {
  const std::string path = find_program(program);
  const auto text = read_foreign_file(path, kScriptBytesMost);
  std::string line = text ? text.value().substr(0, text.value().find('\n')) : "";
  if (line.starts_with("#!/")) {
    line = line.substr(2);
    if (line == "/usr/bin/env python3" || line == "/usr/bin/env python") return line.substr(13);
    if (python_command({line, "x"})) return line;
  }
  const std::string beside = (std::filesystem::path(path).parent_path() / "python3").string();
  return find_program(beside).empty() ? "python3" : beside;
}

std::optional<Found> find_launcher(const std::vector<std::string>& argv) {
  const std::string name = file_name(argv[0]);
  const std::string second = argv.size() > 1 ? argv[1] : "", third = argv.size() > 2 ? argv[2] : "";
  if (name == "torchrun") return Found{.python = python_of(argv[0])};
  if (name == "accelerate" && second == "launch")
    return Found{Launcher::accelerate, 2, python_of(argv[0])};
  if (name == "accelerate-launch") return Found{Launcher::accelerate, 1, python_of(argv[0])};
  if (name == "fabric" && second == "run")
    return Found{Launcher::fabric, third == "model" ? size_t{3} : size_t{2}, python_of(argv[0])};
  if (std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end())
    return Found{.launcher = Launcher::other};
  if (!python_command({argv[0], "x"}) || second != "-m") return std::nullopt;
  if (third == "torch.distributed.run") return Found{.options = 3, .python = argv[0]};
  if (third == "torch.distributed.launch")
    return Found{.options = 3, .python = argv[0], .gives_local_rank = true};
  if (third == "accelerate.commands.launch") return Found{Launcher::accelerate, 3, argv[0]};
  return std::nullopt;
}

const Option* find_option(std::span<const Option> table, const std::string& name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Option& option) { return option.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Option* option_of(Launcher launcher, std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  if (launcher == Launcher::fabric) return find_option(kFabric, name);
  const Option* common = find_option(kCommon, name);
  if (common != nullptr) return common;
  return launcher == Launcher::torchrun ? find_option(kTorchrun, name)
                                        : find_option(kAccelerate, name);
}

constexpr const char* kSayOneRank =
    "what each rank runs, as -- python3 train.py: lockstep starts the ranks";

// Walks over the launcher's options.
class Reader {
 public:
  Reader(const std::vector<std::string>& argv, const Found& found, InputErrors* errors)
      : argv_(argv), found_(found), errors_(errors), gives_local_rank_(found.gives_local_rank) {}

  std::optional<OfLauncher> read() {
    size_t at = found_.options;
    while (at < argv_.size() && argv_[at].starts_with("-"))
      if (!take(&at)) return std::nullopt;
    if (at == argv_.size()) return refuse("it is given nothing to start");
    if (gives_local_rank_)
      return refuse("it gives the script --local-rank, which lockstep does not",
                    "-- sh -c 'exec python3 train.py --local-rank=$LOCAL_RANK'");
    of_.left_out = fmt::format("{}", fmt::join(argv_.begin(), argv_.begin() + index_of(at), " "));
    if (!no_python_) of_.command = {found_.python, "-u"};
    if (module_) of_.command.emplace_back("-m");
    std::vector<std::string> script(argv_.begin() + index_of(at), argv_.end());
    // As argparse does: the first one is no word of the script's.
    const auto dashes = std::find(script.begin(), script.end(), "--");
    if (dashes != script.end()) script.erase(dashes);
    of_.command.insert(of_.command.end(), script.begin(), script.end());
    return std::move(of_);
  }

 private:
  static std::ptrdiff_t index_of(size_t at) { return static_cast<std::ptrdiff_t>(at); }

  std::nullopt_t refuse(const std::string& why, const char* instead = kSayOneRank) {
    const size_t words = std::min(found_.options, argv_.size());
    errors_->push_back(option_error(
        fmt::format("COMMAND {}: {}",
                    fmt::join(argv_.begin(), argv_.begin() + index_of(words), " "), why),
        instead));
    return std::nullopt;
  }

  bool take(size_t* at) {
    std::string name = argv_[(*at)++], value;
    const size_t equals = name.find('=');
    const bool has_value = name.starts_with("--") && equals != std::string::npos;
    if (has_value) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const Option* option = option_of(found_.launcher, name);
    if (option == nullptr || option->means == Means::refused) {
      refuse(fmt::format("its option {} cannot be left out", name));
      return false;
    }
    if (option->takes == Takes::value && !has_value) {
      if (*at == argv_.size()) {
        refuse(fmt::format("its option {} has no value", name));
        return false;
      }
      value = argv_[(*at)++];
    }
    if (name == "--use-env" || name == "--use_env") gives_local_rank_ = false;
    return mean(*option, value);
  }

  bool mean(const Option& option, const std::string& value) {
    switch (option.means) {
      case Means::world:
        return take_world(value);
      case Means::hosts:
        if (value == "1" || value == "1:1") return true;
        refuse(fmt::format("{} hosts, and a program is judged on one", value));
        return false;
      case Means::module:
        module_ = true;
        return true;
      case Means::no_python:
        no_python_ = true;
        return true;
      case Means::variable:
        of_.variables.push_back(option.takes == Takes::value
                                    ? fmt::format("{}={}", option.variable, value)
                                    : std::string(option.variable));
        return true;
      case Means::nothing:
      case Means::refused:
        return true;
    }
    return true;
  }

  // "auto", "cpu" and "gpu" ask for as many as there are: the verb's own number is taken.
  bool take_world(const std::string& value) {
    const bool number = !value.empty() && value.size() < 4 &&
                        value.find_first_not_of("0123456789") == std::string::npos;
    if (!number) return true;
    const int64_t world = std::stoll(value);
    if (world >= 2 && world <= 64) of_.world = world;
    return true;
  }

  const std::vector<std::string>& argv_;
  const Found& found_;
  InputErrors* errors_;
  OfLauncher of_;
  bool gives_local_rank_, module_ = false, no_python_ = false;
};

bool is_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 && word[0] != '-';
}

// How many words of `env NAME=value ...` stand before what it starts. Its options are not known.
size_t words_of_env(const std::vector<std::string>& argv) {
  if (argv.empty() || file_name(argv[0]) != "env") return 0;
  size_t at = 1;
  while (at < argv.size() && is_assignment(argv[at])) ++at;
  return at < argv.size() && argv[at][0] != '-' ? at : 0;
}

std::optional<OfLauncher> after_env(const std::vector<std::string>& argv, size_t words,
                                    InputErrors* errors) {
  const auto begin = argv.begin() + static_cast<std::ptrdiff_t>(words);
  auto of = of_launcher({begin, argv.end()}, errors);
  if (!of) return of;
  of->of_env.assign(argv.begin() + 1, begin);
  const bool elsewhere =
      std::any_of(of->of_env.begin(), of->of_env.end(),
                  [](const std::string& variable) { return variable.starts_with("PATH="); });
  if (elsewhere) {
    errors->push_back(
        option_error("COMMAND env PATH=...: lockstep looks for the launcher by itself",
                     "PATH set before lockstep"));
    return std::nullopt;
  }
  of->left_out = fmt::format("{} {}", fmt::join(argv.begin(), begin, " "), of->left_out);
  return of;
}

void set_variable(const std::string& variable, bool others_yield) {
  const size_t equals = variable.find('=');
  ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), others_yield);
}

}  // namespace

std::optional<OfLauncher> of_launcher(const std::vector<std::string>& argv, InputErrors* errors) {
  if (const size_t words = words_of_env(argv); words > 0) return after_env(argv, words, errors);
  const auto found = find_launcher(argv);
  if (!found) return std::nullopt;
  if (found->launcher == Launcher::other) {
    errors->push_back(option_error(
        fmt::format("COMMAND {}: it starts ranks, and so does lockstep", argv[0]), kSayOneRank));
    return std::nullopt;
  }
  auto of = Reader(argv, *found, errors).read();
  if (of) {
    if (found->launcher == Launcher::fabric) of->variables.emplace_back("LT_CLI_USED=1");
    of->variables.emplace_back("TORCHELASTIC_RUN_ID=lockstep");
    of->variables.emplace_back("OMP_NUM_THREADS=1");  // unless it is set, as both do
  }
  return of;
}

std::optional<int64_t> leave_out_launcher(std::vector<std::string>* command, bool spawns,
                                          InputErrors* errors) {
  if (spawns) return std::nullopt;
  auto of = of_launcher(*command, errors);
  if (!of) return std::nullopt;
  for (const std::string& variable : of->of_env) set_variable(variable, true);
  for (const std::string& variable : of->variables) set_variable(variable, false);
  print_error(fmt::format("lockstep: {} is left out, for lockstep starts the ranks: {}\n",
                          of->left_out, fmt::join(of->command, " ")));
  *command = std::move(of->command);
  return of->world;
}

}  // namespace lockstep
