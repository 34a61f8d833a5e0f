#include "sim/tools/program/run_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "scenarios/json/json_text.h"
#include "sim/analysis/metrics.h"
#include "sim/judge/failure.h"
#include "sim/judge/rank_view.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/tools/program/result.h"
#include "sim/tools/program/run_blame.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string end_text(const ProgramRun& run, int64_t rank) {
  const RunOutcome& outcome = run.outcome;
  const auto& by_program = run.ended_by_program;
  if (std::find(by_program.begin(), by_program.end(), rank) != by_program.end())
    return "ended by the program";
  const ProcessEnd* end = end_of(outcome, rank);
  if (end == nullptr) return "never started";
  if (end->by_launcher) return "ended by lockstep";
  if (end->signal != 0) return signal_text(end->signal);
  // Codes of errors were translated for the judge.
  if (end->exit_code == 0 || static_cast<size_t>(rank) >= outcome.evidence.size())
    return fmt::format("exit code {}", end->exit_code);
  const auto evidence = evidence_from_json_text(outcome.evidence[static_cast<size_t>(rank)]);
  return evidence && !evidence->error.text.empty() ? "an exception"
                                                   : fmt::format("exit code {}", end->exit_code);
}

bool all_ended_well(const RunOutcome& outcome) {
  return std::all_of(outcome.ends.begin(), outcome.ends.end(), [](const ProcessEnd& end) {
    return end.signal == 0 && end.exit_code == 0 && !end.by_launcher;
  });
}

// In the steps in which it is late; below, Python's own doing and recording are as much.
constexpr double kLeastLateMs = 2;

void take_straggler(const ProgramRun& run, ProgramRunResult* result) {
  const Timeline timeline = timeline_of(run.outcome);
  auto& found = result->straggler = find_straggler(models_of(timeline));
  if (!found && !timeline.left_out.empty())
    result->no_straggler =
        fmt::format("step {}: {}", timeline.left_out[0].step, timeline.left_out[0].why);
  if (!found || found->late_steps == 0 || found->late_class == kStarved) return;
  const double late_ms =
      found->cost_ms * static_cast<double>(found->steps) / static_cast<double>(found->late_steps);
  if (late_ms >= kLeastLateMs) return;
  Straggler nobody;
  nobody.steps = found->steps;
  nobody.step_ms = found->step_ms;
  nobody.without_ms = found->step_ms;
  nobody.text =
      fmt::format("none by {:g} ms or more; smaller differences cannot be resolved", kLeastLateMs);
  found = nobody;
}

// Why there is nothing to say of a run that ended well.
std::string why_unknown(const ProgramRun& run, int64_t world) {
  for (int64_t rank = 0; rank < world; ++rank) {
    const ProgramRankFacts& facts = run.ranks[static_cast<size_t>(rank)];
    if (!facts.met)
      return fmt::format("rank {} of {} ended without init_process_group: nothing was seen of it",
                         rank, world);
    if (facts.world != world)
      return fmt::format(
          "the program ran {} ranks where {} were asked for; does it take its number of ranks from "
          "elsewhere?",
          facts.world, world);
  }
  return "";
}

std::string never_acted(const ProgramRunResult& result) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < result.faults.size(); ++i)
    if (result.acted[i].empty()) texts.push_back(fmt::format("\"{}\"", result.faults[i].text));
  if (texts.empty()) return "";
  return fmt::format("{} {} never acted: {} address was not reached", plural(texts.size(), "fault"),
                     fmt::join(texts, ", "), texts.size() == 1 ? "its" : "their");
}

bool made_no_step(const ProgramRunResult& result) {
  return std::all_of(result.last_steps.begin(), result.last_steps.end(),
                     [](int64_t last) { return last <= 0; });
}

std::string fault_text(const ProgramRunResult& result, size_t i) {
  const std::vector<int64_t>& ranks = result.acted[i];
  return fmt::format("  fault \"{}\": {}\n", result.faults[i].text,
                     ranks.empty() ? "never acted" : "acted on " + ranks_text(ranks));
}

// Where the primary rank was in the program, if it told.
std::string place_of(const ProgramRunResult& result) {
  if (!result.failure->rank) return "";
  const ProgramRankFacts& facts = result.ranks[static_cast<size_t>(*result.failure->rank)];
  if (!facts.line.empty()) return fmt::format("      at {}\n", facts.line);
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(facts.places.size(), 4); ++i)
    text += fmt::format("      {} {}\n", i == 0 ? "in" : "from", facts.places[i]);
  return text;
}

std::string straggler_text(const ProgramRunResult& result) {
  if (!result.straggler)
    return fmt::format("  straggler: not known, no step of all ranks was recorded{}\n",
                       result.no_straggler.empty() ? "" : " (" + result.no_straggler + ")");
  const Straggler& found = *result.straggler;
  if (found.text.empty()) return "  straggler: none\n";
  const std::string since =
      found.first_late_step > 0 ? fmt::format("; first in step {}", found.first_late_step) : "";
  return fmt::format("  straggler: {}{}\n", found.text, since);
}

std::string answer(const ProgramRunResult& result) {
  if (result.signal != 0) return "interrupted";
  const int code = exit_code_of(result);
  const char* word = verdict_of(result) == Verdict::inconclusive ? "inconclusive"
                     : result.completed                          ? "completed"
                                                                 : "failed";
  return word + (code == 0 ? "" : fmt::format("; exit {}", code));
}

std::string head_text(const ProgramRunResult& result) {
  int64_t steps = 0;
  for (const int64_t last : result.last_steps) steps = std::max(steps, last);
  std::string text =
      fmt::format("{} ranks, {} {}", result.world_size, steps, plural(steps, "step"));
  for (const ProgramRankFacts& rank : result.ranks)
    if (rank.met)
      return text + fmt::format("; tap {} of PyTorch {}; time-out {}\n", rank.tap, rank.torch,
                                duration_text(rank.timeout_ms));
  return text + "\n";
}

Json rank_json(const ProgramRunResult& result, size_t rank) {
  const ProgramRankFacts& facts = result.ranks[rank];
  return {{"rank", rank},
          {"end", result.ends[rank]},
          {"last_step", result.last_steps[rank]},
          {"error", or_null(facts.error)},
          {"line", or_null(facts.line)},
          {"stack", facts.stack},
          {"tap", or_null(facts.tap)},
          {"torch", or_null(facts.torch)},
          {"timeout_ms", facts.timeout_ms < 0 ? Json() : Json(facts.timeout_ms)}};
}

Json straggler_json(const ProgramRunResult& result) {
  if (!result.straggler) return nullptr;
  Json json = as_json(*result.straggler);
  const int64_t first = result.straggler->first_late_step;
  json["first_late_step"] = first > 0 ? Json(first) : Json();
  return json;
}

Json faults_json(const ProgramRunResult& result) {
  Json faults = Json::array();
  for (size_t i = 0; i < result.faults.size(); ++i)
    faults.push_back({{"text", result.faults[i].text},
                      {"kind", to_word(result.faults[i].fault.kind)},
                      {"acted_on", result.acted[i]}});
  return faults;
}

}  // namespace

std::string failure_text(const ProgramRunResult& result) {
  const Failure& failure = *result.failure;
  std::string text = fmt::format("  {}\n{}", failure.message, place_of(result));
  for (const int64_t rank : failure.secondary) {
    const ProgramRankFacts& facts = result.ranks[static_cast<size_t>(rank)];
    text += fmt::format("  victim rank {}: {}\n", rank,
                        facts.error.empty() ? result.ends[static_cast<size_t>(rank)] : facts.error);
  }
  return text;
}

Json failure_json(const ProgramRunResult& result) {
  if (!result.failure) return nullptr;
  const Failure& failure = *result.failure;
  const auto& collective = failure.explanation.collective;
  Json what;
  if (collective)
    what = {{"operation", collective->operation},
            {"sequence", collective->sequence},
            {"bucket", or_null(collective->bucket)},
            {"bytes", collective->bytes}};
  return {{"rank", or_null(failure.rank)},
          {"kind", failure.kind},
          {"signal", or_null(failure.signal)},
          {"phase", or_null(failure.phase)},
          {"step", failure.step},
          {"collective", what},
          {"missing", failure.explanation.missing},
          {"waited_ms", or_null(failure.explanation.waited_ms)},
          {"victims", failure.secondary},
          {"message", failure.message}};
}

namespace {

// "rank 0 in backward of step 5, ranks 1 and 2 in load of step 6"
std::string places_text(const std::vector<RankView>& views) {
  std::map<std::string, std::vector<int64_t>> places;
  for (const RankView& view : views) places[where(&view)].push_back(view.rank);
  std::vector<std::string> texts;
  for (const auto& [place, ranks] : places)
    texts.push_back(fmt::format("{} {}", ranks_text(ranks), place));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

ProgramRunResult judge_run(const ProgramRun& run, const std::vector<ProgramFault>& faults,
                           const ProgramLaunch& launch, const ProgramWatch& watch) {
  ProgramRunResult result;
  result.command = launch.start.command;
  result.world_size = launch.world;
  result.faults = faults;
  result.acted = run.acted;
  result.ranks = run.ranks;
  result.signal = run.signal;
  result.on_cpu = run.on_cpu;
  result.duration_s = static_cast<double>(run.outcome.duration_ms) / 1e3;
  const std::vector<RankView> views = views_of(run.outcome);
  for (const RankView& view : views) {
    result.ends.push_back(end_text(run, view.rank));
    result.last_steps.push_back(view.last_step_end);
  }
  if (run.signal != 0) return result;
  result.why = run.why;
  if (run.cut_off) result.places = places_text(views);
  if (result.why.empty() && run.cut_off)
    result.why = fmt::format("it had not ended after {:g} s (--limit), and ranks were at work: {}",
                             watch.limit_s, result.places);
  if (!result.why.empty()) return result;
  result.completed = all_ended_well(run.outcome);
  if (!result.completed) {
    take_failure(run, &result);
    const bool hung = result.failure && result.failure->kind == "hang";
    if (made_no_step(result) && !hung) result.advice = run.advice;
    return result;
  }
  result.why = why_unknown(run, launch.world);
  if (!result.why.empty()) result.advice = run.advice;
  if (result.why.empty()) result.why = never_acted(result);
  take_straggler(run, &result);
  return result;
}

Verdict verdict_of(const ProgramRunResult& result) {
  if (result.signal != 0 || !result.why.empty()) return Verdict::inconclusive;
  return result.completed ? Verdict::pass : Verdict::fail;
}

int exit_code_of(const ProgramRunResult& result) {
  if (result.signal != 0) return 128 + result.signal;
  return exit_code_of(verdict_of(result));
}

std::string program_run_body(const ProgramRunResult& result) {
  std::string text = head_text(result);
  for (size_t i = 0; i < result.faults.size(); ++i) text += fault_text(result, i);
  if (result.failure && result.failure->message != result.why) text += failure_text(result);
  if (!result.why.empty()) text += fmt::format("  inconclusive: {}\n", result.why);
  if (result.completed) text += straggler_text(result);
  if (result.on_cpu) text += "  note: its CUDA devices were the CPU, its NCCL was Gloo\n";
  if (!result.advice.empty()) text += fmt::format("  note: {}\n", result.advice);
  return text;
}

std::string program_run_text(const ProgramRunResult& result, bool quiet) {
  return (quiet ? "" : program_run_body(result) + "\n") + answer(result) + "\n";
}

Json as_json(const ProgramRunResult& result) {
  Json ranks = Json::array();
  for (size_t rank = 0; rank < result.ranks.size(); ++rank)
    ranks.push_back(rank_json(result, rank));
  return with_head({{"verdict", to_word(verdict_of(result))},
                    {"exit_code", exit_code_of(result)},
                    {"command", result.command},
                    {"world_size", result.world_size},
                    {"outcome", result.completed ? RunEnding::completed : RunEnding::failed},
                    {"inconclusive", or_null(result.why)},
                    {"on_cpu", result.on_cpu},
                    {"timeout_scale", result.timeout_scale},
                    {"faults", faults_json(result)},
                    {"failure", failure_json(result)},
                    {"straggler", straggler_json(result)},
                    {"ranks", ranks},
                    {"duration_ms", static_cast<int64_t>(result.duration_s * 1e3)}});
}

TestReport test_report(const ProgramRunResult& result) {
  TestReport report;
  report.name = "lockstep run";
  report.answer = answer(result);
  report.time_s = result.duration_s;
  TestCase one = case_of_world(result.command, result.world_size);
  one.time_s = result.duration_s;
  const Verdict verdict = verdict_of(result);
  if (verdict != Verdict::pass) {
    one.result =
        verdict == Verdict::fail ? TestCase::Result::failed : TestCase::Result::inconclusive;
    one.kind = result.failure ? result.failure->kind : to_word(verdict);
    one.message = result.failure ? result.failure->message : result.why;
    one.text = program_run_text(result, false);
  }
  report.cases.push_back(std::move(one));
  say_inconclusive(verdict, &report);
  return report;
}

}  // namespace lockstep
