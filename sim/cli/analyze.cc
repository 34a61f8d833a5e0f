#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/conclude.h"
#include "sim/cli/kept_runs.h"
#include "sim/cli/output_files.h"
#include "sim/cli/predicted.h"
#include "sim/cli/recordings.h"
#include "sim/cli/verbs.h"
#include "sim/cli/worker_program.h"
#include "sim/judge/words.h"
#include "sim/launch/files.h"
#include "sim/launch/recording.h"
#include "sim/report/metrics_table.h"
#include "sim/report/run_text.h"
#include "sim/report/terminal.h"
#include "sim/report/timeline_svg.h"
#include "sim/report/trace.h"
#include "sim/report/version.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The command of the invocation, as its result tells it: that knows the words that were given.
std::string told_command(const std::string& run_dir) {
  const std::string path = (fs::path(run_dir).parent_path() / "result.json").string();
  const auto document = json_or_discarded(read_foreign_file(path, kResultBytesMost).value_or(""));
  if (!document.is_object() || !document.contains("runs") || !document["runs"].is_array())
    return "";
  for (const auto& run : document["runs"])
    if (run.is_object() && run.value("again", Json()).is_string() &&
        run.value("run_dir", Json()) == run_dir)
      return run["again"];
  return "";
}

// Nothing, or why the step cannot be drawn.
std::optional<InputError> draw(const AnalyzeOptions& options, const RunOutcome& outcome) {
  const Timeline timeline = timeline_of(outcome);
  const std::vector<int64_t> steps = drawable_steps(timeline);
  if (options.svg_step && !std::binary_search(steps.begin(), steps.end(), *options.svg_step)) {
    return option_error(fmt::format("--svg-step {}: not recorded", *options.svg_step),
                        steps.empty() ? "no step, for none was recorded"
                                      : fmt::format("{} to {}", steps.front(), steps.back()));
  }
  TimelinePicture picture;
  picture.name = outcome.plan.scenario.name;
  if (const std::string axes = label_of(outcome.plan.set); !axes.empty())
    picture.name += ": " + axes;
  picture.step = options.svg_step;
  picture.faults = fault_marks(outcome);
  const std::string& torch = outcome.libtorch;
  picture.notes = {fmt::format("lockstep {} ({}){}  seed {}", lockstep_version(), lockstep_commit(),
                               torch.empty() ? "" : "  LibTorch " + torch,
                               outcome.plan.scenario.seed)};
  write_atomically(options.svg, timeline_svg(timeline, picture));
  return std::nullopt;
}

// The one that was asked for, or fitted to the run itself.
Expected<MachineModel> machine_for(const RunOutcome& outcome, const AnalyzeOptions& options) {
  if (!options.machine.empty()) return read_machine_model(options.machine);
  auto fit = fit_machine({samples_of(outcome.plan, timeline_of(outcome), outcome.run_dir)},
                         this_machine().cores);
  if (!fit) return fit.errors();
  return std::move(fit.value().machine);
}

// The step time of the run's plan in virtual time, to stand beside what was measured. Bad input: a
// machine that was asked for and cannot be read.
Expected<PredictedStep> prediction_of(const RunOutcome& outcome, const RunResult& result,
                                      const AnalyzeOptions& options) {
  PredictedStep predicted;
  predicted.machine = options.machine;
  const auto machine = machine_for(outcome, options);
  if (!machine && !options.machine.empty()) return machine.errors();
  if (!result.metrics || !result.metrics->step_ms || result.outcome != "completed") {
    predicted.why_not = "the run has no step time to compare with";
    return predicted;
  }
  const auto simulated = machine ? judged_in_virtual_time(outcome.plan, machine.value())
                                 : Expected<RunResult>(machine.errors());
  if (!simulated)
    predicted.why_not = reason_of(simulated.errors());
  else if (!simulated.value().metrics || !simulated.value().metrics->step_ms)
    predicted.why_not = "in virtual time it has no step to measure";
  else
    predicted.step_ms = *simulated.value().metrics->step_ms;
  return predicted;
}

std::string prediction_text(const RunResult& result, const AnalyzeOptions& options) {
  const PredictedStep& predicted = *result.predicted;
  if (predicted.step_ms) {
    const double measured = *result.metrics->step_ms;
    return fmt::format(
        "predicted in virtual time: {:.1f} ms a step, measured {:.1f} ({:+.1f} %); "
        "machine calibrated on {}\n",
        *predicted.step_ms, measured, (*predicted.step_ms / measured - 1) * 100,
        options.machine.empty() ? "this very run" : options.machine);
  }
  // Of a run that broke down nobody expects one, unless a machine was named for it.
  if (result.outcome != "completed" && options.machine.empty()) return "";
  return fmt::format("not predicted in virtual time: {}\n", predicted.why_not);
}

Expected<RunResult> analyze_run(const std::string& folder, const AnalyzeOptions& options) {
  auto outcome = read_run_folder(folder);
  if (!outcome) return outcome.errors();
  const fs::path libraries = fs::path(folder).parent_path() / "libraries.json";
  outcome.value().libtorch = libtorch_of(read_libraries(libraries.string()));
  RunResult result = judge_run(outcome.value(), {.metrics = true, .intervals = options.metrics});
  // A folder may be a stranger's: its words are quoted, and the command to paste is our own.
  const std::string told = told_command(folder);
  result.told_command = told.empty() ? result.again : told;
  result.again = as_called("lockstep analyze " + shell_word(folder));
  if (!options.trace.empty()) write_trace(options.trace, outcome.value());
  if (!options.svg.empty())
    if (auto error = draw(options, outcome.value())) return *error;
  const auto prediction = prediction_of(outcome.value(), result, options);
  if (!prediction) return prediction.errors();
  result.predicted = prediction.value();
  return result;
}

int report_analysis(const AnalyzeOptions& options, const ResultDocument& document) {
  const Style style(wants_color(options.color, STDOUT_FILENO));
  int code = document.exit_code;
  code = write_output("--json", options.json, code, [&] { return to_text(document); });
  code = leave_ci_reports(options.ci, test_report("analyze", document), code);
  std::string text;
  for (const RunResult& run : document.runs)
    text += run_text(run, style) + prediction_text(run, options) + "\n";
  return print_result(text + answer_line(document), code);
}

}  // namespace

int analyze(const AnalyzeOptions& options) {
  std::error_code ignored;
  if (fs::exists(options.folder, ignored) && !fs::is_directory(options.folder, ignored))
    return analyze_trace(options);
  if (const InputErrors errors = ci_errors(options.ci); !errors.empty())
    return bad_input(errors, options.json);
  if (is_recording(options.folder)) return analyze_recording(options);
  const std::vector<std::string> folders = run_folders(options.folder);
  if (!options.trace.empty() && folders.size() > 1)
    return bad_input({refused_folder(options.folder, "--trace takes the folder of one run")});
  if (!options.svg.empty() && folders.size() > 1)
    return bad_input({refused_folder(options.folder, "--svg takes the folder of one run")});
  ResultDocument document;
  document.machine = this_machine();
  try {
    for (const std::string& run : folders) {
      auto result = analyze_run(run, options);
      if (!result) return bad_input(result.errors(), options.json, options.ci);
      document.runs.push_back(std::move(result.value()));
    }
    document.seed = document.runs.front().seed;
    document.libraries =
        read_libraries((fs::path(folders.front()).parent_path() / "libraries.json").string());
    conclude(0, &document);
    return report_analysis(options, document);
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
}

}  // namespace lockstep
