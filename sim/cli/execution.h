#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/cli/outputs.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/verbs.h"
#include "sim/cli/worker_program.h"
#include "sim/judge/judge.h"
#include "sim/plan/plans.h"
#include "sim/report/document.h"
#include "sim/report/html/timeline.h"
#include "sim/report/machine.h"
#include "sim/report/moving_line.h"
#include "sim/report/terminal.h"

namespace lockstep {

// What follows once all runs are judged, however they were executed.

// Fills in what follows from its runs, errors and `signal` (0: none): verdict and exit code.
void conclude(int signal, ResultDocument* document);
// Kept beside the evidence, for whoever looks at it later; without it the answer still stands.
void leave_result(const RunDirectory& directory, const ResultDocument& document);
// Errors on standard error, --json, reports for CI, the answer on standard output: the exit code.
int report(const VerifyOptions& options, const ResultDocument& document);
// Of a selection without a run: says why on standard error, in --json and in reports for CI.
int nothing_selected(const std::string& why, const char* verb, const std::string& json,
                     const CiOptions& ci);

// Judges runs as they end and keeps the results in the order of the plans.
class Runs {
 public:
  // `earlier`: what the runs are compared with, or null.
  Runs(const VerifyOptions& options, const std::vector<SelectedFile>& files,
       const EarlierResult* earlier = nullptr)
      : options_(options),
        earlier_(earlier),
        progress_(groups(files), can_move(STDERR_FILENO), options.quiet) {
    for (const SelectedFile& file : files) {
      plans_.insert(plans_.end(), file.plans.begin(), file.plans.end());
      for (const RunPlan& plan : file.plans) words_[plan.file] = file.further_words;
      left_out_.insert(left_out_.end(), file.left_out.begin(), file.left_out.end());
      for (RunPlan& control : control_plans(file.plans)) controls_.push_back(std::move(control));
    }
    reported_ = plans_.size();
    plans_.insert(plans_.end(), controls_.begin(), controls_.end());
    results_.resize(plans_.size());
  }

  const std::vector<RunPlan>& plans() const { return plans_; }

  // Says whether the run's directory is to stay.
  bool done(size_t index, RunOutcome outcome) {
    // By name: of a run in threads the directory is made only where it is to stay.
    const std::filesystem::path out_dir = std::filesystem::path(outcome.run_dir).parent_path();
    if (libtorch_.empty()) libtorch_ = libtorch_of(read_libraries(out_dir / "libraries.json"));
    outcome.libtorch = libtorch_;
    RunResult result = judge_run(
        outcome, {.metrics = options_.metrics || options_.explain, .intervals = options_.metrics});
    result.again =
        as_called(again_command(result.file, options_.selection.sets, result.set, result.seed,
                                words_[result.file], options_.explain ? "run" : "verify"));
    const bool control = index >= reported_;
    if (earlier_ != nullptr) result.baseline = earlier_->beside(result);
    failed_ = failed_ || (!control && result.met == false && result.baseline != "known");
    if (!control) progress_.done(result);
    if (!control)
      if (auto problem = try_trace(options_.trace, outcome, index, reported_))
        problems_.push_back(std::move(*problem));
    if (!control && !options_.html.empty()) timelines_.add(index, outcome, result);
    const bool keep = options_.keep || (!control && result.met != true);
    if (!keep) result.run_dir.clear();
    results_[index] = std::move(result);
    return keep;
  }

  // With --fail-fast: a run was not as expected.
  bool enough() const { return options_.fail_fast && failed_; }

  // Selected, and not ended.
  std::vector<NotRun> not_run() const {
    std::vector<NotRun> left = left_out_;
    for (size_t i = 0; i < reported_; ++i)
      if (!results_[i])
        left.push_back({plans_[i].scenario.name, plans_[i].file, label_of(plans_[i].set)});
    return left;
  }

  // For --html, of those that ended.
  std::vector<std::string> timelines() const {
    std::vector<bool> ended;
    for (size_t i = 0; i < reported_; ++i) ended.push_back(results_[i].has_value());
    return timelines_.take(ended);
  }

  // Outputs that could not be written.
  const InputErrors& problems() const { return problems_; }

  // What ended, with the controls of second runs applied.
  std::vector<RunResult> take() {
    std::vector<RunResult> known;
    for (size_t i = 0; i < reported_; ++i)
      if (results_[i]) known.push_back(std::move(*results_[i]));
    for (size_t i = reported_; i < results_.size(); ++i) apply_control(control_result(i), &known);
    for (RunResult& run : known)  // again, where a control has changed it
      if (earlier_ != nullptr) run.baseline = earlier_->beside(run);
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
  const EarlierResult* earlier_;
  Progress progress_;
  std::vector<RunPlan> plans_, controls_;
  std::vector<NotRun> left_out_;
  std::map<std::string, std::vector<std::string>> words_;  // further ones, by file
  size_t reported_ = 0;
  bool failed_ = false;
  std::vector<std::optional<RunResult>> results_;
  InputErrors problems_;
  HtmlTimelines timelines_;
  std::string libtorch_;  // the workers' version, once one of them has come so far
};

// Runs what is selected and judges it, with a progress line on standard error; `out_dir` holds the
// evidence. `earlier`: what they are compared with, or null. Errors of the environment are in the
// document.
ResultDocument execute_selected(const VerifyOptions& options,
                                const std::vector<SelectedFile>& files, const std::string& worker,
                                const std::string& out_dir, const EarlierResult* earlier = nullptr);

}  // namespace lockstep
