#include "sim/cli/select.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <tuple>

#include "golden/stored.h"
#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/parse/suite.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/verbs.h"
#include "sim/plan/plans.h"
#include "sim/report/document.h"
#include "sim/report/run_text.h"
#include "sim/report/terminal.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

void append(const InputErrors& errors, InputErrors* all) {
  all->insert(all->end(), errors.begin(), errors.end());
}

std::vector<std::string> files_of(const std::vector<std::string>& paths, InputErrors* errors) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    auto found = find_scenario_files(path);
    if (!found) {
      append(found.errors(), errors);
      continue;
    }
    for (std::string& file : found.value())
      if (std::find(files.begin(), files.end(), file) == files.end())
        files.push_back(std::move(file));
  }
  return files;
}

bool matches(const RunPlan& plan, const std::string& filter) {
  return plan.scenario.name.find(filter) != std::string::npos ||
         label_of(plan.set).find(filter) != std::string::npos;
}

// A stored golden that cannot be read is bad input before the run, not a surprise after it.
InputErrors goldens_errors(const std::vector<RunPlan>& plans) {
  std::vector<std::string> read;
  for (const RunPlan& plan : plans) {
    const std::string path = plan.scenario.golden.value_or("");
    if (path.empty() || std::find(read.begin(), read.end(), path) != read.end()) continue;
    const auto golden = load_stored_golden(path);
    if (!golden) return golden.errors();
    read.push_back(path);
  }
  return {};
}

std::string absolute(const std::string& path) {
  std::error_code error;
  return std::filesystem::absolute(path, error).lexically_normal().string();
}

SuiteOptions suite_options(const Selection& selection) {
  SuiteOptions options;
  options.sets = selection.sets;
  options.seed = selection.seed;
  options.full = selection.full;
  if (!selection.data_dir.empty()) options.data_dir = absolute(selection.data_dir);
  for (const std::string& file : selection.trusted_models)
    options.trusted_models.push_back(absolute(file));
  return options;
}

// Losses that others printed, likewise.
InputErrors published_errors(const std::vector<RunPlan>& plans) {
  for (const RunPlan& plan : plans)
    if (const Options& loss = plan.scenario.loss.options; loss.has("published")) {
      const auto columns = load_published_losses(loss.text("published"));
      return columns ? InputErrors() : columns.errors();
    }
  return {};
}

// What a scenario, or some of several, makes of options that not every scenario has a use for.
struct Used {
  bool full = false, data = false;
  std::vector<std::string> modules;  // files of TorchScript
  void add(const Used& other) {
    full = full || other.full;
    data = data || other.data;
    modules.insert(modules.end(), other.modules.begin(), other.modules.end());
  }
  bool loads(const std::string& trusted) const {
    return std::ranges::any_of(modules, [&](const std::string& module) {
      std::error_code ignored;
      return std::filesystem::equivalent(trusted, module, ignored);
    });
  }
};

Used used_by(const ScenarioFile& file, const std::vector<RunPlan>& plans) {
  Used used{file.has_full, file.reads_data_dir, {}};
  for (const RunPlan& plan : plans)
    if (const Part& model = plan.scenario.model; model.kind == "torchscript")
      used.modules.push_back(model.options.text("file"));
  return used;
}

// The options of a selection that the file has a use for.
Selection narrowed(Selection selection, const Used& used) {
  selection.full = selection.full && used.full;
  if (!used.data) selection.data_dir.clear();
  std::erase_if(selection.trusted_models,
                [&](const std::string& trusted) { return !used.loads(trusted); });
  return selection;
}

// Options that no selected scenario has a use for.
void add_unused(const Selection& selection, const Used& used, InputErrors* errors) {
  if (!selection.data_dir.empty() && !used.data)
    errors->push_back(option_error("--data " + selection.data_dir +
                                   " holds no files that a selected scenario reads"));
  if (selection.full && !used.full)
    errors->push_back(option_error("--full: no selected scenario has a long form",
                                   "a scenario with the key \"full\""));
  for (const std::string& trusted : selection.trusted_models)
    if (!used.loads(trusted))
      errors->push_back(
          option_error(fmt::format("--trust-model {}: no selected scenario loads it", trusted),
                       "the file of a scenario's model \"torchscript\""));
}

void add_file(const std::string& path, const Selection& selection,
              std::vector<SelectedFile>* selected, Used* used, InputErrors* errors) {
  auto file = load_scenario_file(path, suite_options(selection));
  if (!file) return append(file.errors(), errors);
  auto plans = make_plans(file.value(), selection.simulated);
  if (!plans) return append(plans.errors(), errors);
  if (const InputErrors broken = goldens_errors(plans.value()); !broken.empty())
    return append(broken, errors);
  if (const InputErrors broken = published_errors(plans.value()); !broken.empty())
    return append(broken, errors);
  const Used own = used_by(file.value(), plans.value());
  used->add(own);
  for (const InputError& note : file.value().notes) print_error(to_text(note, "note") + "\n");
  SelectedFile one{path, file.value().name, file.value().what, std::move(plans.value())};
  one.further_words = further_words(narrowed(selection, own));
  one.places = std::move(file.value());
  one.places.combinations.clear();
  one.in_folder = std::ranges::find(selection.paths, path) == selection.paths.end();
  std::erase_if(one.plans, [&](const RunPlan& plan) { return !matches(plan, selection.filter); });
  selected->push_back(std::move(one));
}

// A --set that fits no file says so once, not once a file.
void remove_repeated(InputErrors* errors) {
  InputErrors unique;
  std::vector<std::string> seen;
  for (InputError& error : *errors) {
    const std::string text = to_text(error);
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
    seen.push_back(text);
    unique.push_back(std::move(error));
  }
  *errors = std::move(unique);
}

}  // namespace

Expected<std::vector<SelectedFile>> select(const Selection& selection) {
  InputErrors errors;
  std::vector<SelectedFile> selected;
  Used used;
  for (const std::string& file : files_of(selection.paths, &errors))
    add_file(file, selection, &selected, &used, &errors);
  if (errors.empty()) add_unused(selection, used, &errors);
  remove_repeated(&errors);
  if (!errors.empty()) return errors;
  return selected;
}

std::vector<std::string> further_words(const Selection& selection) {
  std::vector<std::string> words;
  if (selection.full) words.emplace_back("--full");
  if (!selection.data_dir.empty()) words.insert(words.end(), {"--data", selection.data_dir});
  for (const std::string& file : selection.trusted_models)
    words.insert(words.end(), {"--trust-model", file});
  return words;
}

int bad_input(const InputErrors& errors, const std::string& json, const CiOptions& ci) {
  std::string text;
  for (const InputError& error : errors) text += to_text(error) + "\n";
  const auto count = static_cast<int64_t>(errors.size());
  text += fmt::format("{} {}; nothing was run; exit {}\n", count, plural(count, "error"),
                      kExitBadInput);
  print_error(text);
  CiOptions writable = ci;
  if (!ci_errors(ci).empty()) writable.junit.clear();
  leave_ci_reports(writable, test_report(errors), kExitBadInput);
  if (json.empty() || why_not_writable(json)) return kExitBadInput;
  ResultDocument document;
  document.machine = this_machine();
  document.exit_code = kExitBadInput;
  document.errors = errors;
  return write_output("--json", json, kExitBadInput, [&] { return to_text(document); });
}

int print_result(const std::string& text, int code) {
  const int error = print(text);
  if (error == 0 || error == EPIPE) return code;  // `| head -1` has read what it wanted
  print_error(fmt::format("lockstep: error: standard output: {}; exit {}\n", strerror(error),
                          kExitBadInput));
  return kExitBadInput;
}

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kShardsMost = 4096;
constexpr const char* kFile = "last_failed.json";

// Absolute path, name, axes.
using RunKey = std::tuple<std::string, std::string, std::string>;

RunKey key_of(const std::string& file, const std::string& name, const std::string& label) {
  std::error_code ignored;
  return {fs::absolute(file, ignored).lexically_normal().string(), name, label};
}

RunKey key_of(const RunPlan& plan) {
  return key_of(plan.file, plan.scenario.name, label_of(plan.set));
}

uint64_t hash_of(const RunPlan& plan) {
  const std::string text = plan.scenario.name + "\n" + label_of(plan.set);
  return hash64(text.data(), text.size());
}

// Runs that failed last; what cannot be read counts as none.
std::vector<RunKey> read_failed() {
  for (const std::string& folder : state_folders()) {
    const auto text = read_foreign_file(folder + "/" + kFile);
    if (!text) continue;
    const Json document = json_or_discarded(text.value());
    std::vector<RunKey> keys;
    if (!document.is_object() || !document.contains("runs") || !document["runs"].is_array())
      return keys;
    for (const Json& run : document["runs"])
      if (run.is_array() && run.size() == 3 &&
          std::all_of(run.begin(), run.end(), [](const Json& word) { return word.is_string(); }))
        keys.emplace_back(run[0].get<std::string>(), run[1].get<std::string>(),
                          run[2].get<std::string>());
    return keys;
  }
  return {};
}

void write_failed(const std::vector<RunKey>& keys) {
  Json runs = Json::array();
  for (const auto& [file, name, label] : keys) runs.push_back({file, name, label});
  const std::string text = to_text(Json{{"schema_version", 1}, {"runs", std::move(runs)}});
  for (const std::string& folder : state_folders())
    if (make_private_folder(folder)) return write_atomically(folder + "/" + kFile, text);
}

template <class Keep>
void keep_plans(std::vector<SelectedFile>* files, Keep keep) {
  for (SelectedFile& file : *files)
    std::erase_if(file.plans, [&](const RunPlan& plan) { return !keep(plan); });
}

}  // namespace

namespace {

// Of a Slurm array, whose numbers need not begin at 0, nor follow each other by one.
std::optional<Shard> array_shard(const Variables& variables) {
  const auto number = [&](const char* name) -> std::optional<int64_t> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : number_in<int64_t>(found->second);
  };
  const auto id = number("SLURM_ARRAY_TASK_ID"), count = number("SLURM_ARRAY_TASK_COUNT");
  const auto least = number("SLURM_ARRAY_TASK_MIN");
  const int64_t step = number("SLURM_ARRAY_TASK_STEP").value_or(1);
  if (!id || !count || !least || step < 1 || *id < *least) return std::nullopt;
  return Shard{(*id - *least) / step + 1, *count};
}

}  // namespace

Expected<Shard> launched_shard(const Variables& variables) {
  const auto placed = detect_placement(variables, "auto");
  if (!placed) return placed.errors();
  const Placement& tasks = placed.value();
  const std::optional<Shard> array = array_shard(variables);
  if (!array && tasks.launcher == "none")
    return option_error("--shard auto: no launcher says which part this process is to take",
                        "I/N, or a process of a Slurm array, srun, mpirun or torchrun");
  const Shard outer = array.value_or(Shard());
  const Shard both{(outer.index - 1) * tasks.tasks + tasks.task + 1, outer.count * tasks.tasks};
  if (outer.index <= outer.count && both.count <= kShardsMost) return both;
  return option_error(
      fmt::format("--shard auto: part {} of {} is no part of a whole", both.index, both.count),
      "array numbers without gaps, or I/N");
}

Expected<Shard> parse_shard(const std::string& text) {
  if (text == "auto") return launched_shard(this_environment());
  const std::string_view words = text;
  const size_t slash = std::min(words.find('/'), words.size());
  const auto index = number_in<int64_t>(words.substr(0, slash));
  const auto count = number_in<int64_t>(words.substr(std::min(slash + 1, words.size())));
  if (index && count && *index >= 1 && *index <= *count && *count <= kShardsMost)
    return Shard{*index, *count};
  return option_error(fmt::format("--shard \"{}\" is no part of a whole", printable(text)),
                      fmt::format("I/N with 1 <= I <= N <= {}, or auto", kShardsMost));
}

void keep_shard(const Shard& shard, std::vector<SelectedFile>* files) {
  // Dealt out in the order of their hashes; of equal ones in the order of the selection.
  std::vector<std::pair<uint64_t, const RunPlan*>> all;
  for (const SelectedFile& file : *files)
    for (const RunPlan& plan : file.plans) all.emplace_back(hash_of(plan), &plan);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::map<const RunPlan*, bool> kept;
  for (size_t i = 0; i < all.size(); ++i)
    kept[all[i].second] = static_cast<int64_t>(i) % shard.count == shard.index - 1;
  for (SelectedFile& file : *files) {
    std::vector<RunPlan> plans;
    for (RunPlan& plan : file.plans)
      if (kept.at(&plan)) plans.push_back(std::move(plan));
    file.plans = std::move(plans);
  }
}

int64_t count_runs(const std::vector<SelectedFile>& files) {
  int64_t runs = 0;
  for (const SelectedFile& file : files) runs += static_cast<int64_t>(file.plans.size());
  return runs;
}

std::vector<std::string> keep_last_failed(std::vector<SelectedFile>* files) {
  const std::vector<RunKey> failed = read_failed();
  std::vector<std::string> kept;
  keep_plans(files, [&](const RunPlan& plan) {
    if (std::find(failed.begin(), failed.end(), key_of(plan)) == failed.end()) return false;
    const std::string label = label_of(plan.set);
    kept.push_back(plan.scenario.name + (label.empty() ? "" : " " + label));
    return true;
  });
  return kept;
}

void note_last_failed(const ResultDocument& document) noexcept {
  try {
    std::vector<RunKey> failed = read_failed();
    const std::vector<RunKey> before = failed;
    for (const RunResult& run : document.runs) {
      const RunKey key = key_of(run.file, run.name, run.label);
      std::erase(failed, key);
      if (run.met != true) failed.push_back(key);
    }
    std::error_code ignored;
    std::erase_if(failed,
                  [&](const RunKey& key) { return !fs::exists(std::get<0>(key), ignored); });
    if (failed != before) write_failed(failed);
  } catch (const std::exception&) {  // a convenience: the verdict stands without it
  }
}

}  // namespace lockstep
