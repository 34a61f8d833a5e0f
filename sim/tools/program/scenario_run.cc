#include "sim/tools/program/scenario_run.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "sim/judge/expectation.h"

namespace lockstep {
namespace {

std::optional<Lane> lane_of(ProgramLaneKind kind) {
  switch (kind) {
    case ProgramLaneKind::replica:
      return Lane::replica;
    case ProgramLaneKind::replay:
      return Lane::replay;
    case ProgramLaneKind::float64:
      return Lane::float64;
    case ProgramLaneKind::hook:
      break;
  }
  return std::nullopt;  // no scenario names it: it is asked for by its bound
}

Divergence divergence_of(const Failure& failure) {
  Divergence divergence;
  divergence.step = failure.step;
  divergence.cause = failure.cause;
  return divergence;
}

// Of the lane that gave the verdict.
std::optional<Divergence> divergence_of(const ProgramWorld& world) {
  for (const ProgramLane& lane : world.lanes) {
    const ProgramFinding& found = lane.finding;
    if (found.cause == ProgramCause::none || found.verdict != verdict_of(world)) continue;
    Divergence divergence;
    divergence.step = found.step;
    divergence.tensor = found.entry;
    divergence.cause = row_of(found.cause).name;
    divergence.explanation = found.words;
    return divergence;
  }
  return std::nullopt;
}

}  // namespace

ProgramVerification verification_of(const ProgramScenario& scenario) {
  const ProgramPart& program = scenario.program;
  ProgramVerification asked;
  asked.start = program.start;
  asked.fresh_processes = program.fresh_processes;
  asked.drills = program.drill == "always";
  asked.never_drills = program.drill == "never";
  asked.seed = scenario.seed;
  asked.hook = {program.hook_error, program.hook_owed};
  asked.local_batch_norm = program.local_batch_norm;
  if (program.limit_s) asked.limit_s = *program.limit_s;
  return asked;
}

ProgramRunAsked run_of(const ProgramScenario& scenario) {
  const ProgramPart& program = scenario.program;
  ProgramRunAsked asked;
  asked.start = program.start;
  asked.world = scenario.world_size;
  asked.faults = scenario.faults;
  if (program.timeout_scale) asked.timeout_scale = *program.timeout_scale;
  if (program.limit_s) asked.watch.limit_s = *program.limit_s;
  if (program.hang_after_s) asked.watch.hang_after_s = *program.hang_after_s;
  return asked;
}

RunResult observed(const ProgramResult& result) {
  const ProgramWorld& world = result.worlds.front();
  RunResult judged;
  judged.world_size = world.world_size;
  judged.verdict = verdict_of(world);
  for (const ProgramLane& lane : world.lanes)
    if (const auto kind = lane_of(lane.kind)) {
      LaneResult& one = judged.lanes.emplace_back();
      one.lane = *kind;
      one.verdict = lane_verdict(lane);
    }
  judged.first_divergence = divergence_of(world);
  if (!world.failed) return judged;
  judged.failure = world.failed->failure;
  if (judged.failure) judged.first_divergence = divergence_of(*judged.failure);
  return judged;
}

RunResult observed(const ProgramRunResult& result) {
  RunResult judged;
  judged.world_size = result.world_size;
  judged.verdict = verdict_of(result);
  judged.outcome = result.completed ? RunEnding::completed : RunEnding::failed;
  judged.failure = result.failure;
  judged.straggler = result.straggler;
  if (result.failure) judged.first_divergence = divergence_of(*result.failure);
  return judged;
}

void judge_program_expectation(const Expectation& expect, bool interrupted, RunResult* judged) {
  judge_expectation(expect, interrupted, judged);
  if (judged->verdict != Verdict::inconclusive || expect.verdict == Verdict::inconclusive) return;
  judged->met = std::nullopt;
  if (judged->undecided == Undecided::decided) judged->undecided = Undecided::inconclusive;
}

ProgramZygotes* ProgramScenarioRunner::zygotes_of(const ProgramVerification& asked) {
  std::vector<std::string> words = {asked.start.directory};
  words.insert(words.end(), asked.start.command.begin(), asked.start.command.end());
  if (words == words_ && zygotes_ && !asked.fresh_processes && !asked.start.spawns)
    return zygotes_.get();
  zygotes_ = make_zygotes(asked, scratch_);
  words_ = std::move(words);
  return zygotes_.get();
}

ProgramScenarioRun ProgramScenarioRunner::run(const ProgramScenario& scenario,
                                              const std::string& file) {
  const auto begin = std::chrono::steady_clock::now();
  ProgramScenarioRun run;
  run.scenario = &scenario;
  run.file = file;
  const std::string folder = fmt::format("{}/run-{}", scratch_, ++count_);
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (scenario.is_run) {
    run.ran = run_with_faults(run_of(scenario), folder, signals_);
    run.judged = observed(run.ran->result);
  } else {
    const ProgramVerification asked = verification_of(scenario);
    ProgramZygotes* zygotes = zygotes_of(asked);
    ProgramResult& result = run.verified.emplace();
    result.command = asked.start.command;
    result.worlds.emplace_back().world_size = scenario.world_size;
    result.signal = judge_world(asked, folder, zygotes, signals_, &result.worlds.front());
    result.forked = zygotes != nullptr && zygotes->fork();
    if (zygotes != nullptr) result.why_fresh = zygotes->why_fresh();
    run.judged = observed(result);
  }
  judge_program_expectation(scenario.expect, signal_of(run) != 0, &run.judged);
  run.duration_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::filesystem::remove_all(folder, error);
  return run;
}

int signal_of(const ProgramScenarioRun& run) {
  return run.verified ? run.verified->signal : run.ran->result.signal;
}

}  // namespace lockstep
