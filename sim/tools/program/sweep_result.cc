#include "sim/tools/program/sweep_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
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
               fmt::format("{:.2f}", line.step_ms.value),
               fmt::format("{:.2f} .. {:.2f}", line.step_ms.low, line.step_ms.high),
               std::to_string(line.runs.size())});
  return table;
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
  if (plan.caps.size() == 1) return "one cap is no choice: nothing was compared";
  return fmt::format("no difference: {} give the same {}",
                     plan.caps.size() == 2 ? "both caps" : "all caps",
                     plural(world.lines.front().buckets, "bucket"));
}

std::string world_text(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  std::string text = fmt::format("{} ranks", world.world_size);
  if (!world.lines.empty())
    text += fmt::format(
        ", PyTorch {}: medians of {} {}, each of {} steps after {}; the script's "
        "own bucket_cap_mb: {}\n\n{}\n",
        printable(world.torch), world.rounds, plural(world.rounds, "round"),
        world.lines.front().runs.front().numbers.steps, plan.warmup, own_caps(world),
        lines_of(world).text(Style(false)));
  else
    text += "\n";
  if (world.on_cpu)
    text += "torch.cuda was called and was the CPU: on GPUs another cap may be best\n";
  for (const std::string& line : world.log_tail) text += "  | " + printable(line) + "\n";
  if (world.watch.runs > 0)
    text += fmt::format("machine {}: {} of {} {} with other work beside them, {} measured again\n",
                        world.watch.verdict, world.watch.contaminated, world.watch.runs,
                        plural(world.watch.runs, "run"), world.watch.repeated);
  return text;
}

std::string last_line(const ProgramSweepResult& result) {
  if (result.signal != 0) return fmt::format("interrupted by signal {}", result.signal);
  const int code = exit_code_of(result);
  if (code != 0) return fmt::format("inconclusive; exit {}", code);
  return "measured";
}

Json estimate_json(const Estimate& estimate) {
  return {{"value", estimate.value}, {"low", estimate.low}, {"high", estimate.high}};
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
          {"step_ms", estimate_json(line.step_ms)},
          {"runs", rounds}};
}

Json contrast_json(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  if (world.contrasts.empty() || !why_undecided(plan, world).empty()) return nullptr;
  const Contrast& one = world.contrasts.front();
  const double best = *world.lines[one.cell].cell.cap_mb;
  const double usual = *world.lines[one.against].cell.cap_mb;
  return {{"bucket_cap_mb", best},
          {"against_mb", usual},
          {"ratio", estimate_json(one.ratio)},
          {"rounds", one.rounds},
          {"rounds_needed", one.rounds_needed},
          {"significant", one.significant},
          {"recommended_mb", one.significant ? Json(one.ratio.value < 1 ? best : usual) : Json()}};
}

Json world_json(const ProgramSweepPlan& plan, const ProgramSweepWorld& world) {
  Json given = Json::array(), lines = Json::array();
  for (const auto& cap : world.given) given.push_back(cap ? Json(*cap) : Json());
  for (const CellResult& line : world.lines) lines.push_back(line_json(line));
  const std::string why = why_undecided(plan, world);
  return {{"world_size", world.world_size},
          {"verdict", why.empty() ? "pass" : "inconclusive"},
          {"inconclusive", why.empty() ? Json() : Json(why)},
          {"answer", answer_of(plan, world)},
          {"torch", world.torch},
          {"own_caps_mb", given},
          {"on_cpu", world.on_cpu},
          {"rounds", world.rounds},
          {"lines", lines},
          {"contrast", contrast_json(plan, world)},
          {"watch",
           {{"verdict", world.watch.verdict},
            {"runs", world.watch.runs},
            {"contaminated", world.watch.contaminated},
            {"repeated", world.watch.repeated}}},
          {"log_tail", world.log_tail}};
}

}  // namespace

ProgramVerdict verdict_of(const ProgramSweepResult& result) {
  if (result.signal != 0) return ProgramVerdict::inconclusive;
  const bool decided = std::all_of(
      result.worlds.begin(), result.worlds.end(),
      [&](const ProgramSweepWorld& world) { return why_undecided(result.plan, world).empty(); });
  return decided ? ProgramVerdict::pass : ProgramVerdict::inconclusive;
}

int exit_code_of(const ProgramSweepResult& result) {
  if (result.signal != 0) return 128 + result.signal;
  return verdict_of(result) == ProgramVerdict::pass ? kExitPass : kExitInconclusive;
}

std::string program_sweep_text(const ProgramSweepResult& result, bool quiet) {
  std::string text;
  for (const ProgramSweepWorld& world : result.worlds) {
    if (!quiet) text += world_text(result.plan, world);
    text += fmt::format("{} ranks: {}\n{}", world.world_size, answer_of(result.plan, world),
                        quiet ? "" : "\n");
  }
  return text + last_line(result) + "\n";
}

std::string program_sweep_csv(const ProgramSweepResult& result) {
  std::string text = "world_size,bucket_cap_mb,buckets,rounds,step_ms,step_ms_low,step_ms_high\n";
  for (const ProgramSweepWorld& world : result.worlds)
    for (const CellResult& line : world.lines)
      text +=
          fmt::format("{},{},{},{},{},{},{}\n", world.world_size, *line.cell.cap_mb, line.buckets,
                      line.runs.size(), line.step_ms.value, line.step_ms.low, line.step_ms.high);
  return text;
}

std::string program_sweep_markdown(const ProgramSweepResult& result) {
  std::string text;
  for (const ProgramSweepWorld& world : result.worlds)
    text += fmt::format("{} ranks: {}\n\n{}\n", world.world_size,
                        markdown_text(answer_of(result.plan, world)), lines_of(world).markdown());
  return text;
}

Json as_json(const ProgramSweepResult& result) {
  Json worlds = Json::array();
  for (const ProgramSweepWorld& world : result.worlds)
    worlds.push_back(world_json(result.plan, world));
  return with_head({{"verdict", name_of(verdict_of(result))},
                    {"exit_code", exit_code_of(result)},
                    {"command", result.plan.command},
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
    TestCase one = case_of_world(result.plan.command, world.world_size);
    const std::string why = why_undecided(result.plan, world);
    if (!why.empty()) {
      one.result = TestCase::Result::inconclusive;
      one.kind = name_of(ProgramVerdict::inconclusive);
      one.message = why;
      one.text = world_text(result.plan, world);
    }
    report.cases.push_back(std::move(one));
  }
  say_inconclusive(name_of(verdict_of(result)), &report);
  return report;
}

}  // namespace lockstep
