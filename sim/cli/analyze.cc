#include "sim/cli/analyze.h"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <exception>
#include <filesystem>
#include <memory>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/analysis/pipeline_slowdown.h"
#include "sim/analysis/pipeline_trace.h"
#include "sim/analysis/recording.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/cli/verbs.h"
#include "sim/cli/worker_program.h"
#include "sim/judge/judge.h"
#include "sim/launch/run_files.h"
#include "sim/plan/plans.h"
#include "sim/report/analyze_document.h"
#include "sim/report/document.h"
#include "sim/report/fault_marks.h"
#include "sim/report/html/timeline.h"
#include "sim/report/machine.h"
#include "sim/report/run_text.h"
#include "sim/report/terminal.h"
#include "sim/report/timeline_svg.h"

namespace lockstep {
void add_analyze(CLI::App& app, std::function<int()>* action, const OtherCommand& other) {
  auto options = std::make_shared<AnalyzeOptions>();
  CLI::App* verb = app.add_subcommand(
      "analyze", "Judge a finished run again from its files; measure it, and name its straggler.");
  verb->add_option(
          "FOLDER", options->folder,
          "Run directory, or one of an invocation; or the trace of a pipeline (.json[.gz])")
      ->required()
      ->option_text("FOLDER|FILE");
  add_json_and_color(verb, &options->json, &options->color);
  add_html(verb, &options->html);
  add_ci(verb, &options->ci);
  verb->add_flag("--metrics", options->metrics, "All intervals in --json")
      ->needs(verb->get_option("--json"))
      ->group("Output");
  verb->add_option("--machine", options->machine,
                   "What `lockstep calibrate` fitted, to predict the step time by (the run itself)")
      ->option_text("FILE");
  add_trace(verb, &options->trace);
  auto* svg = verb->add_option("--svg", options->svg,
                               "Draw a step of each rank, and how far apart ranks arrive")
                  ->option_text("FILE")
                  ->group("Output");
  verb->add_option("--svg-step", options->svg_step, "The step that is drawn (one of median length)")
      ->option_text("N")
      ->check(between(int64_t{0}, int64_t{1'000'000'000}))
      ->needs(svg)
      ->group("Output");
  verb->footer(
      footer(R"(  lockstep run scenarios/stragglers/slow.json --set /world_size=3 --keep --out slow
  lockstep analyze slow
  lockstep analyze slow/0001 --trace trace.json --svg step.svg
  lockstep analyze slow/0001 --trace dumps/ --trace-kind flight_recorder
  lockstep analyze golden/data/stragglers/timeline-ST.json.gz
  lockstep analyze -- python3 train.py   (a PyTorch script of your own: lockstep program-analyze --help)
)"));
  verb->callback([=] {
    *action = [=] {
      if (const std::string command = other(options->folder); !command.empty())
        return bad_input(
            {file_error(options->folder, "is what a job of PyTorch left, not lockstep", command)},
            options->json, options->ci);
      return analyze(*options);
    };
  });
}

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
  if (!result.metrics || !result.metrics->step_ms || result.outcome != RunEnding::completed) {
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
  if (result.outcome != RunEnding::completed && options.machine.empty()) return "";
  return fmt::format("not predicted in virtual time: {}\n", predicted.why_not);
}

// `index`: of how many it is the next.
Expected<RunResult> analyze_run(const std::string& folder, const AnalyzeOptions& options,
                                size_t index, HtmlTimelines* timelines) {
  auto outcome = read_run_folder(folder);
  if (!outcome) return outcome.errors();
  const fs::path libraries = fs::path(folder).parent_path() / "libraries.json";
  outcome.value().libtorch = libtorch_of(read_libraries(libraries.string()));
  RunResult result = judge_run(outcome.value(), {.metrics = true, .intervals = options.metrics});
  // A folder may be a stranger's: its words are quoted, and the command to paste is our own.
  const std::string told = told_command(folder);
  result.told_command = told.empty() ? result.again : told;
  result.again = as_called("lockstep analyze " + shell_word(folder));
  if (const auto error = trace_error(options.trace, outcome.value())) return *error;
  if (auto error = try_trace(options.trace, outcome.value())) return *error;
  if (!options.html.empty()) timelines->add(index, outcome.value(), result);
  if (!options.svg.empty())
    if (auto error = draw(options, outcome.value())) return *error;
  const auto prediction = prediction_of(outcome.value(), result, options);
  if (!prediction) return prediction.errors();
  result.predicted = prediction.value();
  return result;
}

int report_analysis(const AnalyzeOptions& options, const ResultDocument& document) {
  const Style style = style_of(options.color, STDOUT_FILENO);
  int code = document.exit_code;
  code = write_output("--json", options.json, code, [&] { return to_text(document); });
  code = leave_ci_reports(options.ci, test_report("analyze", document), code);
  std::string text;
  for (const RunResult& run : document.runs)
    text += run_text(run, style) + prediction_text(run, options) + "\n";
  text += answer_line(document);
  code = write_page(options.html, code, [&] {
    return HtmlPage{"analyze", text, to_text(document), document.timelines};
  });
  return print_result(text, code);
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
  if (!options.trace.path.empty() && folders.size() > 1)
    return bad_input({refused_folder(options.folder, "--trace takes the folder of one run")});
  if (!options.svg.empty() && folders.size() > 1)
    return bad_input({refused_folder(options.folder, "--svg takes the folder of one run")});
  ResultDocument document;
  document.machine = this_machine();
  HtmlTimelines timelines;
  try {
    for (const std::string& run : folders) {
      auto result = analyze_run(run, options, document.runs.size(), &timelines);
      if (!result) return bad_input(result.errors(), options.json, options.ci);
      document.runs.push_back(std::move(result.value()));
    }
    document.timelines = timelines.take(std::vector<bool>(document.runs.size(), true));
    document.seed = document.runs.front().seed;
    document.libraries =
        read_libraries((fs::path(folders.front()).parent_path() / "libraries.json").string());
    conclude(0, &document);
    return report_analysis(options, document);
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
}

namespace {

bool is_starved(const RunResult& result) {
  return result.straggler && result.straggler->late_class == kStarved;
}

std::string recorded_text(const RunOutcome& outcome, const RunResult& result,
                          const RecordedEnd& end, const Style& style) {
  const int64_t world_size = outcome.plan.scenario.world_size;
  std::string text =
      fmt::format("{}, recorded by {} {}\n{}", outcome.plan.scenario.name, world_size,
                  plural(world_size, "rank"), metrics_table(result, style));
  const std::string inconclusive = style.verdict(Verdict::inconclusive);
  if (end.kind != RecordedEnd::Kind::whole)
    return text + fmt::format("{}: the run {}: {}; exit {}\n", inconclusive,
                              end.kind == RecordedEnd::Kind::failed ? "failed" : "has no end",
                              to_text(end), kExitInconclusive);
  if (is_starved(result))
    text += fmt::format("{}: busy machine; exit {}\n", inconclusive, kExitInconclusive);
  return text;
}

}  // namespace

int analyze_recording(const AnalyzeOptions& options) {
  if (!options.svg.empty())
    return bad_input({option_error("--svg is not there for a recording; take --trace")});
  const auto outcome = read_recorded_run(options.folder);
  if (!outcome) return bad_input(outcome.errors(), options.json);
  if (const auto error = trace_error(options.trace, outcome.value()))
    return bad_input({*error}, options.json);
  const RecordedEnd end = end_of_recording(outcome.value());
  const bool whole = end.kind == RecordedEnd::Kind::whole;
  // Of a step that not all ranks ended, waits and transfers say nothing.
  const Timeline timeline =
      timeline_of(whole ? outcome.value() : until_step(outcome.value(), end.last_whole_step));
  RunResult result;
  result.metrics = metrics_of(timeline);
  // Who was slow before a run failed is not who made it fail.
  if (end.kind != RecordedEnd::Kind::failed) result.straggler = find_straggler(models_of(timeline));
  const bool known = whole && !result.metrics->steps.empty() && !is_starved(result);
  const int code = known ? kExitPass : kExitInconclusive;
  const int64_t world_size = outcome.value().plan.scenario.world_size;
  const auto json = [&] {
    return to_text(as_json(RecordedAnalysis{options.folder, world_size, code, result, end,
                                            options.metrics ? &timeline : nullptr}));
  };
  if (auto error = try_trace(options.trace, outcome.value())) return bad_input({std::move(*error)});
  try {
    if (!options.json.empty()) write_atomically(options.json, json());
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
  const Style style = style_of(options.color, STDOUT_FILENO);
  const std::string text = recorded_text(outcome.value(), result, end, style);
  return print_result(
      text, write_page(options.html, code, [&] {
        const HtmlFocus focus = focus_of({}, {}, result.straggler);
        return HtmlPage{
            "analyze", text, json(), {html_timeline(outcome.value(), {options.folder, focus})}};
      }));
}

namespace {

InputErrors in_file(InputErrors errors, const std::string& file) {
  for (InputError& error : errors) error.file = file;
  return errors;
}

}  // namespace

int analyze_trace(const AnalyzeOptions& options) {
  const std::string& file = options.folder;
  if (!options.trace.path.empty() || options.metrics)
    return bad_input(
        {option_error("--trace and --metrics take a run directory, and " + file + " is a file")},
        options.json);
  const auto trace = read_pipeline_trace(file);
  if (!trace) return bad_input(trace.errors(), options.json);
  auto slowdown = slowdown_of(trace.value());
  if (!slowdown) return bad_input(in_file(slowdown.errors(), file), options.json);
  PipelineDocument document;
  document.file = file;
  document.steps = trace.value().steps;
  document.dp_ranks = trace.value().dp_ranks;
  document.stages = trace.value().stages;
  document.ops = static_cast<int64_t>(trace.value().ops.size());
  document.slowdown = std::move(slowdown.value());
  try {
    if (!options.json.empty()) write_atomically(options.json, to_text(as_json(document)));
  } catch (const std::exception& error) {
    return bad_input({option_error(error.what())});
  }
  const Style style = style_of(options.color, STDOUT_FILENO);
  const std::string text = pipeline_text(document, style);
  return print_result(text, write_page(options.html, kExitPass, [&] {
                        return HtmlPage{"analyze", text, to_text(as_json(document))};
                      }));
}

}  // namespace lockstep
