#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "scenarios/base/clock.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/verbs.h"
#include "sim/judge/words.h"
#include "sim/launch/executor.h"
#include "sim/report/document.h"
#include "sim/report/progress.h"
#include "sim/report/table.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

InputError option_error(const std::string& message) {
  InputError error;
  error.message = message;
  return error;
}

int list(const std::vector<SelectedFile>& files) {
  Table table;
  table.column("scenario");
  table.column("runs", Table::Align::right);
  table.column("what");
  for (const SelectedFile& file : files)
    if (!file.plans.empty()) table.row({file.name, std::to_string(file.plans.size()), file.what});
  return print_result(table.text(Style(false)), kExitPass);
}

int nothing_selected(const VerifyOptions& options, const std::vector<SelectedFile>& files) {
  const auto count = static_cast<int64_t>(files.size());
  fmt::print(stderr,
             "nothing selected: no scenario name or run label in {} {} contains \"{}\"; "
             "exit {}\n",
             count, plural(count, "file"), options.selection.filter, kExitNothing);
  if (options.json.empty()) return kExitNothing;
  ResultDocument document;
  document.machine = this_machine();
  document.exit_code = kExitNothing;
  write_atomically(options.json, to_text(document));
  return kExitNothing;
}

// Judges runs as they end and keeps the results in the order of the plans.
class Runs {
 public:
  Runs(const VerifyOptions& options, const std::vector<SelectedFile>& files)
      : options_(options), progress_(groups(files), isatty(STDERR_FILENO) == 1, options.quiet) {
    for (const SelectedFile& file : files) {
      plans_.insert(plans_.end(), file.plans.begin(), file.plans.end());
      for (RunPlan& control : control_plans(file.plans)) controls_.push_back(std::move(control));
    }
    reported_ = plans_.size();
    plans_.insert(plans_.end(), controls_.begin(), controls_.end());
    results_.resize(plans_.size());
  }

  const std::vector<RunPlan>& plans() const { return plans_; }

  // Says whether the run's directory is to stay.
  bool done(size_t index, const RunOutcome& outcome) {
    RunResult result = judge_run(outcome);
    result.again = again_command(result.file, options_.selection.sets, result.set, result.seed);
    const bool control = index >= reported_;
    if (!control) progress_.done(result);
    const bool keep = options_.keep || (!control && result.met != true);
    if (!keep) result.run_dir.clear();
    results_[index] = std::move(result);
    return keep;
  }

  // What ended, with the controls of second runs applied.
  std::vector<RunResult> take() {
    std::vector<RunResult> known;
    for (size_t i = 0; i < reported_; ++i)
      if (results_[i]) known.push_back(std::move(*results_[i]));
    for (size_t i = reported_; i < results_.size(); ++i) apply_control(control_result(i), &known);
    return known;
  }

 private:
  static std::map<std::string, Progress::Group> groups(const std::vector<SelectedFile>& files) {
    std::map<std::string, Progress::Group> groups;
    for (const SelectedFile& file : files) {
      if (file.plans.empty()) continue;
      Progress::Group& group = groups[file.name];
      group.runs += static_cast<int64_t>(file.plans.size());
      group.cost = file.plans.front().threads ? 1 : Progress::kProcessCost;
    }
    return groups;
  }

  // A control that did not even end proves nothing.
  RunResult control_result(size_t index) const {
    if (results_[index]) return *results_[index];
    RunResult absent;
    absent.file = plans_[index].file;
    absent.control_of = plans_[index].control;
    return absent;
  }

  const VerifyOptions& options_;
  Progress progress_;
  std::vector<RunPlan> plans_, controls_;
  size_t reported_ = 0;
  std::vector<std::optional<RunResult>> results_;
};

int exit_code_of(const std::string& verdict) {
  if (verdict == "pass") return kExitPass;
  return verdict == "fail" ? kExitFail : kExitInconclusive;
}

ResultDocument execute_all(const VerifyOptions& options, const std::vector<SelectedFile>& files,
                           const std::string& worker, const std::string& out_dir) {
  ResultDocument document;
  document.machine = this_machine();
  const int64_t start_ns = now_ns();
  int signal = 0;
  {
    Runs runs(options, files);
    document.seed = runs.plans().front().scenario.seed;
    try {
      signal = execute(
          runs.plans(),
          {.out_dir = out_dir,
           .worker_program = worker,
           .jobs = options.jobs,
           .fresh_processes = options.fresh_processes,
           .keep_all = options.keep},
          [&](size_t index, const RunOutcome& outcome) { return runs.done(index, outcome); });
    } catch (const std::exception& error) {
      document.errors.push_back(option_error(error.what()));
    }
    document.runs = runs.take();
  }
  document.libraries = read_libraries(out_dir + "/libraries.json");
  document.duration_ms = (now_ns() - start_ns) / 1'000'000;
  document.verdict = overall_verdict(document.runs);
  if (signal != 0 || (!document.errors.empty() && document.verdict == "pass"))
    document.verdict = "inconclusive";
  document.exit_code = signal != 0 ? 128 + signal : exit_code_of(document.verdict);
  return document;
}

int report(const VerifyOptions& options, const ResultDocument& document) {
  for (const InputError& error : document.errors) fmt::print(stderr, "{}\n", to_text(error));
  int code = document.exit_code;
  if (!options.json.empty()) {
    try {
      write_atomically(options.json, to_text(document));
    } catch (const std::exception& error) {
      fmt::print(stderr, "lockstep: error: --json {}\n", error.what());
      code = kExitBadInput;
    }
  }
  TerminalOptions terminal;
  terminal.quiet = options.quiet;
  terminal.verbose = options.verbose;
  terminal.color = wants_color(options.color, STDOUT_FILENO);
  return print_result(terminal_text(document, terminal), code);
}

// Kept beside the evidence, for whoever looks at it later; without it the answer still stands.
void leave_result(const RunDirectory& directory, const ResultDocument& document) {
  try {
    write_atomically(directory.path() + "/result.json", to_text(document));
    directory.note_verdict(document.verdict);
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep: warning: {}\n", error.what());
  }
}

}  // namespace

int verify(const VerifyOptions& options) {
  InputErrors errors;
  if (!options.json.empty())
    if (auto why = why_not_writable(options.json)) errors.push_back(option_error("--json " + *why));
  auto files = select(options.selection);
  if (!files) errors.insert(errors.end(), files.errors().begin(), files.errors().end());
  if (!errors.empty()) return bad_input(errors, options.json);
  bool any = false;
  for (const SelectedFile& file : files.value()) any = any || !file.plans.empty();
  if (!any) return nothing_selected(options, files.value());
  if (options.list) return list(files.value());
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors(), options.json);
  auto directory = options.out.empty() ? RunDirectory::numbered() : RunDirectory::at(options.out);
  if (!directory) return bad_input(directory.errors(), options.json);
  const ResultDocument document =
      execute_all(options, files.value(), worker.value(), directory.value().path());
  leave_result(directory.value(), document);
  return report(options, document);
}

}  // namespace lockstep
