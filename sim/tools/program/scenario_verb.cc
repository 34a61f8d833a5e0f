#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/report/document.h"
#include "sim/report/text_style.h"
#include "sim/tools/program/places.h"
#include "sim/tools/program/scenario_run.h"
#include "sim/tools/program/scenario_verb.h"

namespace lockstep {
namespace {

bool matches(const ProgramScenario& scenario, const std::string& filter) {
  return scenario.name.find(filter) != std::string::npos ||
         label_of(scenario.axes).find(filter) != std::string::npos;
}

void add_new(const InputErrors& errors, InputErrors* all) {
  for (const InputError& error : errors) {  // a --set that fits no file says so once
    const auto same = [&](const InputError& known) { return to_text(known) == to_text(error); };
    if (std::none_of(all->begin(), all->end(), same)) all->push_back(error);
  }
}

std::vector<std::string> scenario_files_of(const std::vector<std::string>& paths,
                                           InputErrors* errors) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    const auto found = find_scenario_files(path);
    if (!found) add_new(found.errors(), errors);
    if (!found) continue;
    for (const std::string& file : found.value())
      if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  }
  return files;
}

// `run` says who was late or failed: of a program that is to be compared with one device it would
// have to leave out what the file expects.
void refuse_judged(const ProgramScenarioFile& file, InputErrors* errors) {
  for (const ProgramScenario& run : file.runs)
    if (!run.is_run)
      return errors->push_back(file_error(printable(file.path),
                                          "run: this scenario has no \"faults\"",
                                          "\"faults\", if only [], or lockstep verify"));
}

void print_list(const std::vector<ProgramScenarioFile>& files, bool with_path, std::string* text) {
  Table table;
  table.column("scenario");
  table.column("runs", Table::Align::right);
  if (with_path) table.column("file");
  table.column("what");
  for (const ProgramScenarioFile& file : files) {
    const std::string runs = std::to_string(file.runs.size());
    if (with_path)
      table.row({file.name, runs, file.path, file.what});
    else if (!file.runs.empty())
      table.row({file.name, runs, file.what});
  }
  *text = table.text(style_of("never", STDOUT_FILENO));
}

size_t count_runs(const std::vector<ProgramScenarioFile>& files) {
  size_t count = 0;
  for (const ProgramScenarioFile& file : files) count += file.runs.size();
  return count;
}

// With those that were not come to: where a trace is put hangs on how many were chosen.
size_t runs_of(const ProgramScenarioResult& result) {
  return result.runs.size() + static_cast<size_t>(result.not_run);
}

ProgramScenarioResult run_all(const VerifyOptions& options,
                              const std::vector<ProgramScenarioFile>& files,
                              const std::string& scratch) {
  const auto begin = std::chrono::steady_clock::now();
  ProgramScenarioResult result;
  result.verb = options.verb();
  result.not_run = static_cast<int64_t>(count_runs(files));
  Signals signals;
  ProgramScenarioRunner runner(scratch, &signals);
  const bool says = !options.quiet && ::isatty(STDERR_FILENO) != 0;
  bool goes_on = true;
  for (const ProgramScenarioFile& file : files)
    for (const ProgramScenario& scenario : file.runs) {
      if (!goes_on) break;
      if (says) print_error(fmt::format("{} {} ...\n", scenario.name, label_of(scenario.axes)));
      const ProgramScenarioRun& run = result.runs.emplace_back(runner.run(scenario, file.path));
      --result.not_run;
      goes_on = signal_of(run) == 0 && (!options.fail_fast || run.judged.met == true);
    }
  result.duration_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

int report(const VerifyOptions& options, const ProgramScenarioResult& result) {
  int code = write_output("--json", options.json, exit_code_of(result),
                          [&] { return to_text(as_json(result)); });
  for (size_t i = 0; i < result.runs.size(); ++i)
    if (result.runs[i].ran)
      code = leave_trace(options.trace, result.runs[i].ran->run.outcome, code, i, runs_of(result));
  code = leave_ci_reports(options.ci, test_report(result), code);
  const std::string text = program_scenarios_text(result, options.quiet);
  code = write_page(options.html, code, [&] {
    HtmlPage page{options.verb(), text, to_text(as_json(result))};
    for (const ProgramScenarioRun& run : result.runs)
      if (run.ran)
        if (auto timeline = timeline_page(*run.ran)) page.timelines.push_back(std::move(*timeline));
    return page;
  });
  return print_result(text, code);
}

}  // namespace

Expected<std::vector<ProgramScenarioFile>> select_programs(const Selection& selection) {
  InputErrors errors;
  SuiteOptions options;
  options.sets = selection.sets;
  options.seed = selection.seed;
  options.full = selection.full;
  std::vector<ProgramScenarioFile> files;
  bool has_full = false;
  for (const std::string& path : scenario_files_of(selection.paths, &errors)) {
    auto file = load_program_scenario(path, options);
    if (!file) add_new(file.errors(), &errors);
    if (!file) continue;
    for (const InputError& note : file.value().notes) print_error(to_text(note, "note") + "\n");
    has_full = has_full || file.value().has_full;
    std::erase_if(file.value().runs,
                  [&](const ProgramScenario& run) { return !matches(run, selection.filter); });
    files.push_back(std::move(file.value()));
  }
  if (errors.empty() && selection.full && !has_full)
    errors.push_back(option_error("--full: no selected scenario has a long form",
                                  "a scenario with the key \"full\""));
  if (!errors.empty()) return errors;
  return files;
}

InputErrors untrusted_programs(const Selection& selection,
                               const std::vector<ProgramScenarioFile>& files) {
  InputErrors errors;
  for (const ProgramScenarioFile& file : files)
    if (!selection.trusts_programs && !file.runs.empty())
      errors.push_back(file_error(
          printable(file.path),
          fmt::format(
              "it runs a command: {}",
              printable(fmt::format("{}", fmt::join(file.runs[0].program.start.command, " ")))),
          "--trust-programs, if you trust it"));
  return errors;
}

int execute_program_scenarios(const VerifyOptions& options) {
  InputErrors errors = ci_errors(options.ci);
  check_output("--json", options.json, &errors);
  const ProgramScratch scratch;
  if (!options.list) check_places(scratch, &errors);
  const auto files = select_programs(options.selection);
  if (!files) add_new(files.errors(), &errors);
  if (files && options.explain)
    for (const ProgramScenarioFile& file : files.value()) refuse_judged(file, &errors);
  if (files && !options.list)
    add_new(untrusted_programs(options.selection, files.value()), &errors);
  if (errors.empty() && !options.list)
    if (auto error = trace_error(options.trace, count_runs(files.value())))
      errors.push_back(std::move(*error));
  if (!errors.empty()) return bad_input(errors, options.json, options.ci);
  if (count_runs(files.value()) == 0)
    return nothing_selected(
        fmt::format("no scenario name or run label contains \"{}\"", options.selection.filter),
        options.verb(), options.json, options.ci);
  if (!options.list) return report(options, run_all(options, files.value(), scratch.path));
  std::string text;
  print_list(files.value(), false, &text);
  return print_result(text, kExitPass);
}

int check_program_scenarios(const Selection& selection) {
  const auto files = select_programs(selection);
  if (!files) return bad_input(files.errors());
  std::string text;
  for (const ProgramScenarioFile& file : files.value()) {
    const auto runs = static_cast<int64_t>(file.runs.size());
    text += fmt::format("{}: {} {}\n", printable(file.path), runs, plural(runs, "run"));
  }
  const auto count = static_cast<int64_t>(files.value().size());
  const auto runs = static_cast<int64_t>(count_runs(files.value()));
  text +=
      fmt::format("ok: {} {}, {} {}\n", count, plural(count, "file"), runs, plural(runs, "run"));
  return print_result(text, kExitPass);
}

int list_program_scenarios(const Selection& selection) {
  const auto files = select_programs(selection);
  if (!files) return bad_input(files.errors());
  std::string text;
  print_list(files.value(), true, &text);
  return print_result(text, kExitPass);
}

}  // namespace lockstep
