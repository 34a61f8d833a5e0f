#include "sim/tools/program/sweep_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/plan/plans.h"
#include "sim/report/document.h"
#include "sim/report/text_style.h"
#include "sim/tools/program/result.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Why nothing is concluded of a world, or empty.
std::string why_undecided(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  if (!world.why.empty()) return world.why;
  if (world.contrasts.empty()) return "";  // that buckets are the same is so on any machine
  if (world.watch.verdict == "busy" && !plan.allow_busy)
    return fmt::format("the machine was busy with other work beside {} of {} runs (--allow-busy)",
                       world.watch.contaminated, world.watch.runs);
  return "";
}

std::string why_unpredicted(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  if (!plan.predicts) return "";
  if (!why_undecided(plan, world).empty() || !world.prediction)
    return "what was measured is, and predictions are held against it";
  return why_undecided(*world.prediction);
}

// Of both.
std::string why_inconclusive(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  const std::string why = why_undecided(plan, world);
  return why.empty() ? why_unpredicted(plan, world) : why;
}

std::string caps_text(const Cell& cell) {
  std::string text = fmt::format("{}", *cell.cap_mb);
  for (const double other : cell.same_caps_mb) text += fmt::format("={}", other);
  return text;
}

Table lines_of(const ProgramSweepWorld& world) {
  Table table;
  for (const char* header : {"cap MiB", "buckets", "step ms", "95 % interval", "rounds"})
    table.column(header, Table::Align::right);
  for (const CellResult& line : world.lines)
    table.row({caps_text(line.cell), std::to_string(line.buckets),
               fmt::format("{:.2f}", line.step_ms.value), interval_text(line, 2),
               std::to_string(line.runs.size())});
  return table;
}

Table predictions_of(const ProgramPrediction& prediction) {
  Table table;
  for (const char* header : {"cap MiB", "buckets", "measured ms", "predicted ms", "off by"})
    table.column(header, Table::Align::right);
  for (const PredictedCap& cap : prediction.caps)
    table.row({fmt::format("{}", cap.cap_mb), std::to_string(cap.buckets),
               cap.measured_ms ? fmt::format("{:.2f}", *cap.measured_ms) : "-",
               fmt::format("{:.2f}", cap.step_ms),
               cap.measured_ms ? fmt::format("{:+.1f} %", cap.off() * 100) : "-"});
  return table;
}

std::string prediction_text(const ProgramPrediction& prediction, const Style& style) {
  if (prediction.caps.empty() || !prediction.model) return "";
  const Fit& fit = prediction.model->fit;
  return fmt::format(
      "\n{}\neach measured cap, predicted from traced runs of the others, is off by {:.1f} % on "
      "average, {:.1f} % at most; tracing made a step {:.1f} % {}\nsimulated machine: {:.1f} us a "
      "message, {:.0f} MB/s; {} all-reduces of {} {}\n",
      predictions_of(prediction).text(style), prediction.mean_off * 100,
      prediction.largest_off * 100, std::fabs(prediction.tracing) * 100,
      prediction.tracing < 0 ? "shorter" : "longer", fit.latency_us.value,
      fit.bandwidth_mb_per_s.value, grouped(fit.samples), prediction.runs,
      plural(prediction.runs, "run"));
}

// What the script says of the cap itself.
std::string own_caps(const ProgramSweepWorld& world) {
  std::vector<std::string> caps;
  for (const auto& cap : world.given) {
    const std::string text = cap ? fmt::format("{}", *cap) : "none (DDP's default, 25 MiB)";
    if (std::find(caps.begin(), caps.end(), text) == caps.end()) caps.push_back(text);
  }
  return fmt::format("{}", fmt::join(caps, ", "));
}

std::string answer_of(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  const std::string why = why_undecided(plan, world);
  if (!why.empty()) return "inconclusive: " + printable(why);
  if (!world.contrasts.empty()) return world.contrasts.front().text;
  if (plan.caps.size() == 1) return "only one cap: nothing was compared";
  return fmt::format("no difference: {} give the same {}",
                     plan.caps.size() == 2 ? "both caps" : "all caps",
                     plural(world.lines.front().buckets, "bucket"));
}

std::string predicted_answer(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  const std::string why = why_unpredicted(plan, world);
  return why.empty() ? answer_of(*world.prediction) : "inconclusive: " + printable(why);
}

// What was measured and what is only predicted are told apart where both are there.
std::string answer_lines(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  const std::string ranks = fmt::format("{} ranks: ", world.world_size);
  if (!plan.predicts) return ranks + answer_of(plan, world) + "\n";
  return fmt::format("{0}measured: {1}\n{0}predicted: {2}\n", ranks, answer_of(plan, world),
                     predicted_answer(plan, world));
}

std::string world_text(const ProgramSweepPlan& plan, const ProgramSweepWorld& world,
                       const Style& style) {
  std::string text = fmt::format("{} ranks", world.world_size);
  if (!world.lines.empty())
    text += fmt::format(
        ", PyTorch {}: medians of {} {}, each of {} steps after {}; the script's "
        "own bucket_cap_mb: {}\n\n{}\n",
        printable(world.torch), world.rounds, plural(world.rounds, "round"),
        world.lines.front().runs.front().numbers.steps, plan.warmup, own_caps(world),
        lines_of(world).text(style));
  else
    text += "\n";
  if (world.on_cpu)
    text += "torch.cuda was called and was the CPU: on GPUs another cap may be best\n";
  for (const std::string& line : world.log_tail) text += "  | " + printable(line) + "\n";
  if (world.watch.runs > 0)
    text += fmt::format("machine {}: other work ran beside {} of {} {}, {} repeated\n",
                        world.watch.verdict, world.watch.contaminated, world.watch.runs,
                        plural(world.watch.runs, "run"), world.watch.repeated);
  if (world.prediction) text += prediction_text(*world.prediction, style) + "\n";
  return text;
}

// What was written, and what to do with it.
std::string calibration_text(const ProgramSweepResult& result) {
  const std::string& folder = result.plan.calibration;
  if (folder.empty() || result.worlds.empty()) return "";
  const auto& prediction = result.worlds.front().prediction;
  if (!prediction || !prediction->model)
    return "--calibration: nothing was written, since there is nothing to simulate\n";
  return fmt::format(
      "wrote {0}; at more ranks:\n  lockstep simulate {0}/{1} --machine {0}/{2} --world-size 16\n",
      printable(shell_word(folder)), kProgramScenario, kProgramMachine);
}

std::string last_line(const ProgramSweepResult& result) {
  if (result.signal != 0) return fmt::format("interrupted by signal {}", result.signal);
  const int code = exit_code_of(result);
  if (code != 0) return fmt::format("inconclusive; exit {}", code);
  return "measured";
}

Json estimate_json(const Estimate& estimate, bool spans) {
  return {{"value", estimate.value},
          {"low", spans ? Json(estimate.low) : Json()},
          {"high", spans ? Json(estimate.high) : Json()}};
}

Json line_json(const CellResult& line) {
  Json rounds = Json::array();
  for (const SweepRun& run : line.runs)
    rounds.push_back({{"round", run.round + 1},
                      {"step_ms", run.numbers.step_ms},
                      {"steps", run.numbers.steps},
                      {"outlier_steps", run.numbers.outlier_steps}});
  return {{"bucket_cap_mb", *line.cell.cap_mb},
          {"same_buckets_mb", line.cell.same_caps_mb},
          {"buckets", line.buckets},
          {"step_ms", estimate_json(line.step_ms, has_interval(line))},
          {"runs", rounds}};
}

Json contrast_json(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  if (world.contrasts.empty() || !why_undecided(plan, world).empty()) return nullptr;
  const Contrast& one = world.contrasts.front();
  const double best = *world.lines[one.cell].cell.cap_mb;
  const double usual = *world.lines[one.against].cell.cap_mb;
  return {{"bucket_cap_mb", best},
          {"against_mb", usual},
          {"ratio", estimate_json(one.ratio, one.rounds > 1)},
          {"rounds", one.rounds},
          {"rounds_needed", one.rounds_needed},
          {"significant", one.significant},
          {"recommended_mb", one.significant ? Json(one.ratio.value < 1 ? best : usual) : Json()}};
}

Json prediction_json(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  if (!world.prediction) return nullptr;
  const ProgramPrediction& prediction = *world.prediction;
  const std::string why = why_unpredicted(plan, world);
  Json caps = Json::array();
  for (const PredictedCap& cap : prediction.caps)
    caps.push_back({{"bucket_cap_mb", cap.cap_mb},
                    {"buckets", cap.buckets},
                    {"step_ms", cap.step_ms},
                    {"measured_ms", or_null(cap.measured_ms)},
                    {"off", cap.measured_ms ? Json(cap.off()) : Json()}});
  return {{"inconclusive", or_null(why)},
          {"answer", predicted_answer(plan, world)},
          {"caps", caps},
          {"mean_off", prediction.mean_off},
          {"largest_off", prediction.largest_off},
          {"tracing", prediction.tracing},
          {"traced_runs", prediction.runs},
          {"fit", prediction.model ? as_json(prediction.model->fit) : Json()}};
}

Json world_json(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  Json given = Json::array(), lines = Json::array();
  for (const auto& cap : world.given) given.push_back(cap ? Json(*cap) : Json());
  for (const CellResult& line : world.lines) lines.push_back(line_json(line));
  const std::string why = why_inconclusive(plan, world);
  return {{"world_size", world.world_size},
          {"verdict", why.empty() ? Verdict::pass : Verdict::inconclusive},
          {"inconclusive", why.empty() ? Json() : Json(why)},
          {"answer", answer_of(plan, world)},
          {"torch", world.torch},
          {"own_caps_mb", given},
          {"on_cpu", world.on_cpu},
          {"rounds", world.rounds},
          {"lines", lines},
          {"contrast", contrast_json(plan, world)},
          {"prediction", prediction_json(plan, world)},
          {"watch",
           {{"verdict", world.watch.verdict},
            {"runs", world.watch.runs},
            {"contaminated", world.watch.contaminated},
            {"repeated", world.watch.repeated}}},
          {"log_tail", world.log_tail}};
}

std::string markdown_of(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  std::string text = fmt::format("{} ranks: {}\n\n{}\n", world.world_size,
                                 markdown_text(answer_of(plan, world)), lines_of(world).markdown());
  if (!world.prediction) return text;
  return text + fmt::format("predicted: {}\n\n{}\n", markdown_text(predicted_answer(plan, world)),
                            predictions_of(*world.prediction).markdown());
}

const std::vector<PredictedCap> kNoCaps;

std::string predicted_field(const ProgramSweepWorld& world, const CellResult& line) {
  for (const PredictedCap& cap : world.prediction ? world.prediction->caps : kNoCaps)
    if (cap.measured_ms && cap.cap_mb == *line.cell.cap_mb) return fmt::format(",{}", cap.step_ms);
  return ",";
}

std::string interval_fields(const CellResult& line) {
  if (!has_interval(line)) return ",";
  return fmt::format("{},{}", line.step_ms.low, line.step_ms.high);
}

}  // namespace

Verdict verdict_of(const ProgramSweepResult& result) {
  if (result.signal != 0) return Verdict::inconclusive;
  const bool decided = std::all_of(
      result.worlds.begin(), result.worlds.end(),
      [&](const ProgramSweepWorld& world) { return why_inconclusive(result.plan, world).empty(); });
  return decided ? Verdict::pass : Verdict::inconclusive;
}

int exit_code_of(const ProgramSweepResult& result) {
  if (result.signal != 0) return 128 + result.signal;
  return exit_code_of(verdict_of(result));
}

std::string program_sweep_text(const ProgramSweepResult& result, bool quiet, const Style& style) {
  std::string text;
  for (const ProgramSweepWorld& world : result.worlds) {
    if (!quiet) text += world_text(result.plan, world, style);
    text += answer_lines(result.plan, world) + (quiet ? "" : "\n");
  }
  return text + calibration_text(result) + last_line(result) + "\n";
}

std::string program_sweep_csv(const ProgramSweepResult& result) {
  const bool predicts = result.plan.predicts;
  std::string text =
      fmt::format("world_size,bucket_cap_mb,buckets,rounds,step_ms,step_ms_low,step_ms_high{}\n",
                  predicts ? ",predicted_ms" : "");
  for (const ProgramSweepWorld& world : result.worlds) {
    for (const CellResult& line : world.lines)
      text += fmt::format("{},{},{},{},{},{}{}\n", world.world_size, *line.cell.cap_mb,
                          line.buckets, line.runs.size(), line.step_ms.value, interval_fields(line),
                          predicts ? predicted_field(world, line) : "");
    for (const PredictedCap& cap : world.prediction ? world.prediction->caps : kNoCaps)
      if (!cap.measured_ms)
        text += fmt::format("{},{},{},0,,,,{}\n", world.world_size, cap.cap_mb, cap.buckets,
                            cap.step_ms);
  }
  return text;
}

std::string program_sweep_markdown(const ProgramSweepResult& result) {
  std::string text;
  for (const ProgramSweepWorld& world : result.worlds) text += markdown_of(result.plan, world);
  return text;
}

Json as_json(const ProgramSweepResult& result) {
  Json worlds = Json::array();
  for (const ProgramSweepWorld& world : result.worlds)
    worlds.push_back(world_json(result.plan, world));
  return with_head({{"verdict", to_word(verdict_of(result))},
                    {"exit_code", exit_code_of(result)},
                    {"command", result.plan.start.command},
                    {"machine", {{"cpu", result.machine.cpu}, {"cores", result.machine.cores}}},
                    {"steps", result.plan.steps},
                    {"warmup", result.plan.warmup},
                    {"allow_busy", result.plan.allow_busy},
                    {"worlds", worlds},
                    {"duration_ms", static_cast<int64_t>(result.duration_s * 1e3)}});
}

TestReport test_report(const ProgramSweepResult& result) {
  TestReport report;
  report.name = "lockstep sweep";
  report.answer = last_line(result);
  report.time_s = result.duration_s;
  for (const ProgramSweepWorld& world : result.worlds) {
    TestCase one = case_of_world(result.plan.start.command, world.world_size);
    const std::string why = why_inconclusive(result.plan, world);
    if (!why.empty()) {
      one.result = TestCase::Result::inconclusive;
      one.kind = to_word(Verdict::inconclusive);
      one.message = why;
      one.text = world_text(result.plan, world, Style(false));
    }
    report.cases.push_back(std::move(one));
  }
  say_inconclusive(verdict_of(result), &report);
  return report;
}

}  // namespace lockstep
