#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "golden/stored.h"
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

void add_file(const std::string& path, const Selection& selection,
              std::vector<SelectedFile>* selected, InputErrors* errors) {
  auto file = load_scenario_file(path, suite_options(selection));
  if (!file) return append(file.errors(), errors);
  auto plans = make_plans(file.value());
  if (!plans) return append(plans.errors(), errors);
  if (const InputErrors broken = goldens_errors(plans.value()); !broken.empty())
    return append(broken, errors);
  if (const InputErrors broken = published_errors(plans.value()); !broken.empty())
    return append(broken, errors);
  SelectedFile one{path, file.value().name, file.value().what, std::move(plans.value()),
                   file.value().reads_data_dir};
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
  for (const std::string& file : files_of(selection.paths, &errors))
    add_file(file, selection, &selected, &errors);
  const bool data_used = std::any_of(selected.begin(), selected.end(),
                                     [](const SelectedFile& file) { return file.reads_data_dir; });
  if (errors.empty() && !selection.data_dir.empty() && !data_used)
    errors.push_back(option_error("--data " + selection.data_dir +
                                  " holds no files that a selected scenario reads"));
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
  std::fputs(text.c_str(), stderr);
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
  fmt::print(stderr, "lockstep: error: {}; exit {}\n", *problem, kExitBadInput);
  return kExitBadInput;
}

}  // namespace lockstep
