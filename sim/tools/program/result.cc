#include "sim/tools/program/result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "scenarios/json/json_text.h"
#include "sim/report/machine.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

bool is_void(const ProgramLane& lane) {
  return lane.finding.verdict == Verdict::pass && !lane.control_failed;
}

Verdict verdict_of(const ProgramLane& lane) {
  return is_void(lane) ? Verdict::inconclusive : lane.finding.verdict;
}

std::string passed_text(const ProgramFinding& found) {
  const std::string what = found.words.empty() ? "" : found.words + "; ";
  std::string text = fmt::format("{}{} steps; control failed, as it must", what, found.steps);
  if (found.worst > 0) text += fmt::format("; worst distance {:.2g}", found.worst);
  if (found.skipped > 0)
    text += fmt::format("; {} parameters not compared (no gradient)", found.skipped);
  return text;
}

std::string place_of(const ProgramFinding& found) {
  return found.step > 0 ? fmt::format("step {}, {}", found.step, found.entry) : found.entry;
}

std::string cause_text(const ProgramFinding& found) {
  const ProgramCauseRow& row = row_of(found.cause);
  std::string text = fmt::format("      cause {}: {}; {}\n", row.name, row.meaning, found.words);
  if (!found.line.empty()) text += fmt::format("      at {}\n", found.line);
  if (*row.advice != '\0') text += fmt::format("      to do: {}\n", row.advice);
  return text;
}

std::string lane_text(const ProgramLane& lane) {
  const ProgramFinding& found = lane.finding;
  const std::string head = fmt::format("  lane {:8}", name_of(lane.kind));
  if (is_void(lane)) return fmt::format("{} void: {}\n", head, lane.why_void);
  if (found.verdict == Verdict::pass) return fmt::format("{} pass: {}\n", head, passed_text(found));
  if (found.cause == ProgramCause::none)
    return fmt::format("{} {}: {}\n", head, to_word(found.verdict), found.words);
  return fmt::format("{} {}: {}\n{}", head, to_word(found.verdict), place_of(found),
                     cause_text(found));
}

std::string tap_text(const ProgramReplay& replay) {
  if (replay.tap == TapKind::none) return "";
  std::string text =
      replay.tap == TapKind::hooks
          ? fmt::format("  tap: hooks of PyTorch {} saw {} collectives of rank 0", replay.torch,
                        replay.collectives)
          : fmt::format(
                "  tap: functions of torch.distributed (PyTorch {} has no hooks) saw {} "
                "collectives of rank 0, not those of DistributedDataParallel",
                replay.torch, replay.collectives);
  if (replay.kept_bytes > 0)
    text += fmt::format(", {:.1f} MiB kept", static_cast<double>(replay.kept_bytes) / (1 << 20));
  return text + (replay.finding ? "\n" : "; no sums for lane replay\n");
}

std::string world_text(const ProgramWorld& world) {
  std::string text = fmt::format("{} ranks\n", world.world_size);
  for (const ProgramLane& lane : world.lanes) text += lane_text(lane);
  if (world.drill) text += fmt::format("      {}\n", sentence_of(*world.drill));
  const bool fails = verdict_of(world) == Verdict::fail;
  const char* end = !fails ? "inconclusive" : world.lanes.empty() ? "broke off" : "not judged";
  if (world.failed)
    text += "  broke off:" + failure_text(*world.failed).substr(1);
  else if (!world.not_run.empty())
    text += fmt::format("  {}: {}\n", end, world.not_run);
  if (world.log_tail.size() > 1) {
    text += "  last lines of its log\n";
    for (const std::string& line : world.log_tail) text += fmt::format("      {}\n", line);
  }
  text += tap_text(world.replay);
  if (world.buffers_differ)
    text +=
        "  note: buffers differ between ranks after a step (running statistics?); they are not "
        "judged\n";
  if (world.dropout_off) text += "  note: dropout was switched off, because its draws differ\n";
  if (world.handed)
    text += fmt::format(
        "  note: one device was given the ranks' first weights, inputs and targets, {}; how "
        "samples are dealt is judged only if a DistributedSampler deals them{}\n",
        world.local_batch_norm
            ? "and BatchNorm normalized each rank's batch separately, as requested"
            : "since it drew different ones",
        world.compared ? ""
                       : ", and what the script computes from a batch before model and loss "
                         "receive it is not judged");
  if (world.no_batch_norm)
    text += "  note: --local-batch-norm changes nothing: no trained model has a local BatchNorm\n";
  if (world.scaled_options)
    text += fmt::format(
        "  note: one device was given a batch size {} times as large by the script's own option, "
        "which the script uses for more than its loader\n",
        world.batches);
  if (world.batches > 0 && world.batches < world.world_size)
    text += fmt::format(
        "  note: tensor parallel: {} ranks share one model and one batch; one device has {}\n",
        world.world_size / world.batches,
        world.batches == 1 ? "that batch"
                           : fmt::format("the batches of {} such groups", world.batches));
  if (world.all_gpus)
    text += fmt::format(
        "  note: one device reported {} GPUs to the script, which does not train with one; how it "
        "uses that number is not judged\n",
        world.world_size);
  if (!world.comm_hook.empty())
    text += fmt::format(
        "  note: gradients go through {}, a comm hook of the script; what one loses on purpose is "
        "judged by --hook-error\n",
        world.comm_hook);
  if (!world.never_updated.empty())
    text += fmt::format(
        "  note: no optimizer has {}, which {} trained; one has parameters that never had a "
        "gradient: was a layer replaced after the optimizer was made?\n",
        fmt::join(world.never_updated, ", "), world.never_updated.size() == 1 ? "is" : "are");
  if (world.on_cpu) text += "  note: its CUDA devices were the CPU, its NCCL was Gloo\n";
  if (world.compile_off) text += "  note: torch.compile was off\n";
  return text;
}

std::string answer(const ProgramResult& result) {
  if (result.signal != 0) return "interrupted";
  const int code = exit_code_of(result);
  return to_word(verdict_of(result)) + (code == 0 ? "" : fmt::format("; exit {}", code));
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json lane_json(const ProgramLane& lane) {
  const ProgramFinding& found = lane.finding;
  const ProgramCauseRow& row = row_of(found.cause);
  const bool caused = found.cause != ProgramCause::none;
  return {{"verdict", is_void(lane) ? to_word(LaneVerdict::voided) : to_word(found.verdict)},
          {"control", lane.control_failed ? ControlVerdict::detected : ControlVerdict::missed},
          {"steps", found.steps},
          {"worst_distance", found.worst},
          {"skipped", found.skipped},
          {"step", caused && found.step > 0 ? Json(found.step) : Json()},
          {"entry", caused ? Json(found.entry) : Json()},
          {"cause", caused ? Json(row.name) : Json()},
          {"meaning", text_or_null(row.meaning)},
          {"advice", text_or_null(row.advice)},
          {"line", text_or_null(found.line)},
          {"evidence", text_or_null(is_void(lane) ? lane.why_void : found.words)}};
}

Json tap_json(const ProgramReplay& replay) {
  return {{"kind", name_of(replay.tap)},
          {"torch", text_or_null(replay.torch)},
          {"collectives", replay.collectives},
          {"kept_bytes", replay.kept_bytes}};
}

Json place_json(const DrillPlace& place) {
  if (place.function.empty()) return nullptr;
  return {{"function", place.function},
          {"module", place.kind.empty() ? Json() : Json(place.module)},
          {"class", text_or_null(place.kind)},
          {"line", text_or_null(place.line)}};
}

Json parting_json(const DrillParting& parting) {
  return {{"ranks", place_json(parting.ranks)}, {"one_device", place_json(parting.one)}};
}

Json drill_json(const DrillFinding& found) {
  return {{"stage", name_of(found.stage)},
          {"step", found.step},
          {"operator", place_json(found.place)},
          {"input", place_json(found.input)},
          {"parting", found.parting ? parting_json(*found.parting) : Json()},
          {"parameter", text_or_null(found.parameter)},
          {"ranks", found.ranks},
          {"shape", found.shape},
          {"one_shape", found.one_shape},
          {"distance", or_null(found.distance)},
          {"ratio", or_null(found.ratio)},
          {"compared", found.compared},
          {"skipped", found.skipped},
          {"words", sentence_of(found)}};
}

Json world_json(const ProgramWorld& world) {
  Json lanes = Json::object();
  for (const ProgramLane& lane : world.lanes) lanes[name_of(lane.kind)] = lane_json(lane);
  return {{"world_size", world.world_size},
          {"verdict", to_word(verdict_of(world))},
          {"lanes", lanes},
          {"not_run", text_or_null(world.not_run)},
          {"log_tail", world.log_tail},
          {"failure", world.failed ? failure_json(*world.failed) : Json()},
          {"tap", tap_json(world.replay)},
          {"dropout_off", world.dropout_off},
          {"buffers_differ", world.buffers_differ},
          {"handed", world.handed},
          {"batches", world.batches},
          {"scaled_options", world.scaled_options},
          {"local_batch_norm", world.local_batch_norm},
          {"all_gpus", world.all_gpus},
          {"comm_hook", text_or_null(world.comm_hook)},
          {"on_cpu", world.on_cpu},
          {"compile_off", world.compile_off},
          {"never_updated", world.never_updated},
          {"drill", world.drill ? drill_json(*world.drill) : Json()},
          {"duration_ms", static_cast<int64_t>(world.duration_s * 1e3)}};
}

TestCase case_of(const ProgramResult& result, const ProgramWorld& world) {
  TestCase one = case_of_world(result.command, world.world_size);
  one.time_s = world.duration_s;
  if (verdict_of(world) == Verdict::pass) return one;
  one.result = verdict_of(world) == Verdict::fail ? TestCase::Result::failed
                                                  : TestCase::Result::inconclusive;
  one.text = world_text(world);
  one.kind = to_word(verdict_of(world));
  one.message = world.not_run;
  if (world.failed) one.kind = world.failed->failure->kind;
  if (world.failed) one.message = world.failed->failure->message;
  for (const ProgramLane& lane : world.lanes) {
    if (verdict_of(lane) != verdict_of(world)) continue;
    const bool failed = lane.finding.verdict == Verdict::fail;
    if (failed) one.kind = row_of(lane.finding.cause).name;
    one.message = failed          ? place_of(lane.finding) + ": " + lane.finding.words
                  : is_void(lane) ? lane.why_void
                                  : lane.finding.words;
    break;
  }
  return one;
}

}  // namespace

const char* name_of(ProgramLaneKind lane) {
  constexpr const char* kNames[] = {"replica", "replay", "float64", "hook"};
  return kNames[static_cast<size_t>(lane)];
}

TestCase case_of_world(const std::vector<std::string>& command, int64_t world_size) {
  TestCase one;
  one.group = fmt::format("{}", fmt::join(command, " "));
  one.name = fmt::format("world_size={}", world_size);
  return one;
}

LaneVerdict lane_verdict(const ProgramLane& lane) {
  if (is_void(lane)) return LaneVerdict::voided;
  switch (lane.finding.verdict) {
    case Verdict::pass:
      return LaneVerdict::pass;
    case Verdict::fail:
      return LaneVerdict::fail;
    case Verdict::inconclusive:
      break;
  }
  return LaneVerdict::inconclusive;
}

Verdict verdict_of(const ProgramWorld& world) {
  Verdict verdict = world.failed            ? Verdict::fail
                    : world.not_run.empty() ? Verdict::pass
                                            : Verdict::inconclusive;
  for (const ProgramLane& lane : world.lanes) verdict = worse_verdict(verdict, verdict_of(lane));
  return verdict;
}

Verdict verdict_of(const ProgramResult& result) {
  Verdict verdict = result.signal == 0 ? Verdict::pass : Verdict::inconclusive;
  for (const ProgramWorld& world : result.worlds)
    verdict = worse_verdict(verdict, verdict_of(world));
  return verdict;
}

int exit_code_of(const ProgramResult& result) {
  if (result.signal != 0) return 128 + result.signal;
  return exit_code_of(verdict_of(result));
}

std::string program_body(const ProgramResult& result) {
  std::string text;
  for (const ProgramWorld& world : result.worlds) text += world_text(world);
  if (!result.why_fresh.empty())
    text += fmt::format("note: each rank was a fresh Python: {}\n", result.why_fresh);
  return text;
}

std::string program_text(const ProgramResult& result, bool quiet) {
  return (quiet ? "" : program_body(result) + "\n") + answer(result) + "\n";
}

Json as_json(const ProgramResult& result) {
  Json worlds = Json::array();
  for (const ProgramWorld& world : result.worlds) worlds.push_back(world_json(world));
  return with_head({{"verdict", to_word(verdict_of(result))},
                    {"exit_code", exit_code_of(result)},
                    {"command", result.command},
                    {"processes", result.forked ? "forked" : "fresh"},
                    {"why_fresh", text_or_null(result.why_fresh)},
                    {"worlds", worlds}});
}

TestReport test_report(const ProgramResult& result) {
  TestReport report;
  report.name = "lockstep verify";
  for (const ProgramWorld& world : result.worlds) {
    report.cases.push_back(case_of(result, world));
    report.time_s += world.duration_s;
  }
  report.answer = answer(result);
  say_inconclusive(verdict_of(result), &report);
  return report;
}

}  // namespace lockstep
