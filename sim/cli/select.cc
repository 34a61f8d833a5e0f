#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "golden/stored.h"
#include "scenarios/base/text.h"
#include "scenarios/parse/suite.h"
#include "sim/cli/conclude.h"
#include "sim/cli/output_files.h"
#include "sim/cli/verbs.h"
#include "sim/judge/words.h"
#include "sim/report/document.h"
#include "sim/report/published.h"
#include "sim/report/style.h"
#include "sim/report/terminal.h"

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
  auto plans = make_plans(file.value());
  if (!plans) return append(plans.errors(), errors);
  if (const InputErrors broken = goldens_errors(plans.value()); !broken.empty())
    return append(broken, errors);
  if (const InputErrors broken = published_errors(plans.value()); !broken.empty())
    return append(broken, errors);
  const Used own = used_by(file.value(), plans.value());
  used->add(own);
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
  const auto problem = print(text);
  if (!problem) return code;
  print_error(fmt::format("lockstep: error: {}; exit {}\n", *problem, kExitBadInput));
  return kExitBadInput;
}

}  // namespace lockstep
