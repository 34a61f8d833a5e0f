#include "sim/judge/judge.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "scenarios/base/hash.h"
#include "scenarios/json/json_text.h"
#include "sim/judge/checks.h"
#include "sim/judge/divergence.h"
#include "sim/judge/expectation.h"
#include "sim/judge/failure.h"
#include "sim/judge/lanes.h"
#include "sim/plan/plans.h"

namespace lockstep {
namespace {

RunResult describe(const RunOutcome& outcome) {
  const Scenario& scenario = outcome.plan.scenario;
  RunResult result;
  result.name = scenario.name;
  result.file = outcome.plan.file;
  result.set = outcome.plan.set;
  result.label = label_of(result.set);
  result.world_size = scenario.world_size;
  result.steps = scenario.steps;
  result.start_step = outcome.plan.start_step;
  result.seed = scenario.seed;
  result.reducer = scenario.reducer.kind;
  result.communicator = scenario.communicator.kind;
  result.device = scenario.device;
  if (scenario.communicator.options.has("algorithm"))
    result.algorithm = scenario.communicator.options.text("algorithm");
  result.duration_ms = outcome.duration_ms;
  result.run_dir = outcome.run_dir;
  result.again = again_command(result.file, {}, result.set, result.seed);
  result.control_of = outcome.plan.control;
  return result;
}

bool any_lane(const RunResult& result, std::initializer_list<LaneVerdict> verdicts) {
  return std::any_of(result.lanes.begin(), result.lanes.end(), [&](const LaneResult& lane) {
    return std::find(verdicts.begin(), verdicts.end(), lane.verdict) != verdicts.end();
  });
}

// A stored golden that counts and is not met fails the run as a lane would. Nothing: none was asked
// for; a comparison that cannot be read is inconclusive.
std::optional<LaneVerdict> golden_verdict(const RunResult& result) {
  if (result.golden.empty()) return std::nullopt;
  const auto golden = json_or_discarded(result.golden);
  if (!golden.is_object() || !golden.contains("verdict") || !golden["verdict"].is_string())
    return LaneVerdict::inconclusive;
  const auto said = from_word<LaneVerdict>(golden["verdict"].get<std::string>());
  return said == LaneVerdict::voided ? LaneVerdict::inconclusive  // it has no control
                                     : said.value_or(LaneVerdict::inconclusive);
}

Verdict observed_verdict(const RunResult& result) {
  const bool check_failed =
      std::any_of(result.checks.begin(), result.checks.end(),
                  [](const auto& check) { return check.second == CheckVerdict::fail; });
  const std::optional<LaneVerdict> golden = golden_verdict(result);
  if (any_lane(result, {LaneVerdict::fail}) || check_failed || golden == LaneVerdict::fail)
    return Verdict::fail;
  if (result.outcome == RunEnding::failed ||
      any_lane(result, {LaneVerdict::inconclusive, LaneVerdict::voided}) ||
      golden == LaneVerdict::inconclusive)
    return Verdict::inconclusive;
  return any_lane(result, {LaneVerdict::pass}) ? Verdict::pass : Verdict::inconclusive;
}

std::string hash_of(const std::vector<RankView>& ranks) {
  if (ranks.empty()) return "";
  if (ranks[0].final_hash) return hex(*ranks[0].final_hash);
  return ranks[0].evidence.final_hash;
}

std::string state_hash_of(const std::vector<RankView>& ranks) {
  Hash128 hash;
  const auto add = [&](const auto& value) { hash.update(&value, sizeof value); };
  for (const RankView& rank : ranks) {
    for (const StepValues& chain : rank.chains) {
      add(chain.size());
      for (const auto& [step, value] : chain) {
        add(step);
        add(value);
      }
    }
    hash.update(rank.final_hash ? hex(*rank.final_hash) : rank.evidence.final_hash);
  }
  return hex(hash.digest());
}

bool has_receipt(const RunOutcome& outcome) {
  const auto is_receipt = [](const Event& event) {
    return event.kind == static_cast<uint16_t>(EventKind::receipt);
  };
  return std::any_of(outcome.ranks.begin(), outcome.ranks.end(), [&](const RankRecords& rank) {
    return std::any_of(rank.events.begin(), rank.events.end(), is_receipt);
  });
}

std::vector<int64_t> optimizer_bytes(const std::vector<RankView>& ranks) {
  std::vector<int64_t> bytes;
  for (const RankView& rank : ranks) {
    if (rank.evidence.optimizer_bytes < 0) return {};
    bytes.push_back(rank.evidence.optimizer_bytes);
  }
  return bytes;
}

std::string stored_golden(const RunOutcome& outcome, const std::vector<RankView>& ranks) {
  for (const RankView& rank : ranks)
    if (!rank.evidence.golden.empty()) return rank.evidence.golden;
  if (!outcome.plan.scenario.golden) return "";
  const nlohmann::ordered_json none = {{"path", *outcome.plan.scenario.golden},
                                       {"verdict", LaneVerdict::inconclusive},
                                       {"reason", "no rank reached the comparison"}};
  return none.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void say_interrupted(RunResult* result) {
  for (LaneResult& lane : result->lanes) {
    if (lane.verdict != LaneVerdict::inconclusive) continue;
    lane.reason = lane.reason.empty() ? "interrupted" : "interrupted: " + lane.reason;
  }
}

// Lane whose arithmetic a second-run control puts to the test.
std::optional<Lane> lane_of_control(const std::string& control) {
  return control == "random_data" ? std::optional(Lane::exact) : std::nullopt;
}

std::optional<LaneVerdict> verdict_of_lane(const RunResult& result, Lane lane) {
  for (const LaneResult& known : result.lanes)
    if (known.lane == lane) return known.verdict;
  return std::nullopt;
}

// What a verdict that turned void or inconclusive does to what the author expected.
void judge_again(RunResult* result) {
  const Verdict before = result->verdict;
  result->verdict = observed_verdict(*result);
  if (result->verdict == before) return;
  result->met = std::nullopt;
  result->undecided = Undecided::inconclusive;
  result->unmet.push_back(
      fmt::format("verdict: expected {}, got {}", to_word(before), to_word(result->verdict)));
}

bool is_about_time(const Scenario& scenario) {
  return !scenario.faults.empty() || scenario.compute.kind == "emulated" ||
         std::any_of(scenario.expect.begin(), scenario.expect.end(),
                     [](const Expectation& expect) { return expect.straggler.has_value(); });
}

// After failure and outcome.
void take_metrics(const RunOutcome& outcome, const Measure& measure, RunResult* result) {
  if (!measure.metrics && !measure.intervals && !is_about_time(outcome.plan.scenario)) return;
  Timeline timeline = timeline_of(outcome);
  result->metrics = metrics_of(timeline);
  if (result->outcome == RunEnding::completed)
    result->straggler = find_straggler(models_of(timeline));
  if (measure.intervals) result->intervals = std::move(timeline);
}

}  // namespace

const char* to_word(Undecided undecided) {
  switch (undecided) {
    case Undecided::decided:
      return "decided";
    case Undecided::interrupted:
      return "interrupted";
    case Undecided::inconclusive:
      return "inconclusive";
    case Undecided::busy_machine:
      return "busy_machine";
  }
  return "unknown";
}

RunResult judge_run(const RunOutcome& outcome, const Measure& measure) {
  const std::vector<RankView> ranks = views_of(outcome);
  RunResult result = describe(outcome);
  result.lanes = decide_lanes(outcome, ranks);
  decide_checks(ranks, &result);
  decide_timeline(outcome, ranks, &result);
  decide_losses(outcome.plan, ranks, &result);
  result.failure = find_failure(outcome, ranks);
  result.outcome = result.failure || outcome.interrupted ? RunEnding::failed : RunEnding::completed;
  // Ranks that do not call the same are stuck, or read what is not theirs.
  if (result.failure && result.failure->cause.empty() && first_other_collective(ranks))
    result.failure->cause = "collective_mismatch";
  take_metrics(outcome, measure, &result);
  result.first_divergence = first_divergence(outcome, ranks, result.lanes);
  result.final_hash = hash_of(ranks);
  result.state_hash = state_hash_of(ranks);
  result.acted = has_receipt(outcome);
  result.optimizer_bytes = optimizer_bytes(ranks);
  if (!ranks.empty()) result.reducer_data = ranks[0].evidence.reducer_data;
  result.golden = stored_golden(outcome, ranks);
  if (outcome.interrupted) say_interrupted(&result);
  result.verdict = observed_verdict(result);
  const auto* expect = expectation_for(outcome.plan.scenario.expect, outcome.libtorch);
  if (expect != nullptr)
    judge_expectation(*expect, outcome.interrupted, &result);
  else {
    result.undecided = Undecided::inconclusive;
    result.expected = "depends on the version of LibTorch, which no rank reported";
  }
  decide_common_checks(outcome.plan, ranks, &result);
  if (expect != nullptr && outcome.plan.scenario.common_checks)
    result.kill = kill_of(*expect, result);
  return result;
}

void apply_control(const RunResult& control, std::vector<RunResult>* results) {
  const std::optional<Lane> tested = lane_of_control(control.control_of);
  if (!tested) return;
  const std::optional<LaneVerdict> seen = verdict_of_lane(control, *tested);
  if (seen == LaneVerdict::fail) return;
  const bool missed = seen == LaneVerdict::pass;
  for (RunResult& result : *results) {
    if (result.file != control.file) continue;
    for (LaneResult& lane : result.lanes) {
      if (lane.lane != *tested || lane.verdict == LaneVerdict::not_applicable) continue;
      lane.control = missed ? ControlVerdict::missed : ControlVerdict::not_run;
      if (!missed && lane.verdict != LaneVerdict::pass) continue;
      lane.verdict = missed ? LaneVerdict::voided : LaneVerdict::inconclusive;
      lane.reason = missed ? "the same run on random data, which must fail, passed"
                           : "the same run on random data, which must fail, did not end";
    }
    judge_again(&result);
  }
}

Verdict overall_verdict(const std::vector<RunResult>& results) {
  const auto any = [&](const std::optional<bool>& met) {
    return std::any_of(results.begin(), results.end(), [&](const RunResult& result) {
      return result.met == met && result.baseline != "known";
    });
  };
  if (any(false)) return Verdict::fail;
  return results.empty() || any(std::nullopt) ? Verdict::inconclusive : Verdict::pass;
}

namespace {

using nlohmann::ordered_json;

ordered_json parsed(const std::string& text) {
  if (text.empty()) return nullptr;
  ordered_json value = json_or_discarded(text);
  return value.is_discarded() ? ordered_json(text) : value;
}

// Between values that are not both finite there is no distance.
ordered_json ulp_json(uint64_t ulp) {
  return ulp == UINT64_MAX ? ordered_json(nullptr) : ordered_json(ulp);
}

ordered_json lane_json(const LaneResult& lane) {
  ordered_json json = {{"verdict", lane.verdict},
                       {"control", lane.control},
                       {"reason", or_null(lane.reason)},
                       {"compared", lane.compared}};
  if (lane.distance) json["distance"] = or_null(lane.distance);
  if (lane.statistic) json["statistic"] = or_null(lane.statistic);
  return json;
}

ordered_json common_json(const RunResult& result) {
  if (result.common_checks.empty()) return nullptr;
  ordered_json json = ordered_json::object();
  for (const auto& [name, verdict] : result.common_checks) json[name] = verdict;
  return json;
}

ordered_json kill_json(const Kill& kill) {
  return {{"hidden", kill.hidden},
          {"caught", kill.caught},
          {"cause_right", or_null(kill.cause_right)},
          {"place_right", or_null(kill.place_right)}};
}

ordered_json divergence_json(const Divergence& d) {
  return {
      {"lane", d.lane},
      {"step", d.step},
      {"state_kind", d.state_kind ? ordered_json(to_word(*d.state_kind)) : ordered_json(nullptr)},
      {"tensor", or_null(d.tensor)},
      {"bucket", or_null(d.bucket)},
      {"element", d.element},
      {"run_value", or_null(d.run_value)},
      {"golden_value", or_null(d.golden_value)},
      {"run_bits", or_null(d.run_bits)},
      {"golden_bits", or_null(d.golden_bits)},
      {"ulp", ulp_json(d.ulp)},
      {"max_ulp", ulp_json(d.max_ulp)},
      {"differing", d.differing},
      {"numel", d.numel},
      {"ranks", d.ranks},
      {"cause", d.cause},
      {"explanation", d.explanation}};
}

ordered_json doing_json(const std::vector<Explanation::Doing>& all) {
  ordered_json json = ordered_json::array();
  for (const Explanation::Doing& doing : all)
    json.push_back({{"rank", doing.rank},
                    {"phase", or_null(doing.phase)},
                    {"step", doing.step},
                    {"layer", or_null(doing.layer)},
                    {"last_event", or_null(doing.last_event)},
                    {"for_ms", or_null(doing.for_ms)},
                    {"state", or_null(doing.state)}});
  return json;
}

ordered_json explanation_json(const Explanation& e) {
  ordered_json collective = nullptr;
  if (e.collective)
    collective = {{"operation", e.collective->operation},
                  {"sequence", e.collective->sequence},
                  {"bucket", or_null(e.collective->bucket)},
                  {"bytes", e.collective->bytes}};
  return {{"collective", std::move(collective)},
          {"missing", e.missing},
          {"entered", e.entered},
          {"doing", doing_json(e.doing)},
          {"waited", e.waited},
          {"waited_ms", or_null(e.waited_ms)}};
}

ordered_json failure_json(const Failure& f) {
  return {{"rank", or_null(f.rank)},
          {"kind", f.kind},
          {"signal", or_null(f.signal)},
          {"exit_code", or_null(f.exit_code)},
          {"phase", or_null(f.phase)},
          {"step", f.step},
          {"last_event", or_null(f.last_event)},
          {"message", f.message},
          {"log_tail", f.log_tail},
          {"secondary", f.secondary},
          {"cause", or_null(f.cause)},
          {"stack", f.stack},
          {"detected_ms", or_null(f.detected_ms)},
          {"after_ms", or_null(f.after_ms)},
          {"core_wait_ms", f.core_wait_ms},
          {"explanation", explanation_json(f.explanation)}};
}

ordered_json losses_json(const std::vector<LossRow>& losses) {
  if (losses.empty()) return nullptr;
  ordered_json rows = ordered_json::array();
  for (const LossRow& row : losses)
    rows.push_back({{"epoch", row.epoch},
                    {"step", row.step},
                    {"all_ranks", or_null(row.all_ranks)},
                    {"rank_0", or_null(row.rank_0)}});
  return rows;
}

ordered_json metrics_json(const RunResult& result) {
  if (!result.metrics) return nullptr;
  return as_json(*result.metrics, result.intervals ? &*result.intervals : nullptr);
}

ordered_json predicted_json(const PredictedStep& predicted) {
  return {{"step_ms", or_null(predicted.step_ms)},
          {"machine", or_null(predicted.machine)},
          {"why_not", or_null(predicted.why_not)}};
}

ordered_json set_json(const RunResult& result) {
  ordered_json set = ordered_json::object();
  for (const auto& [pointer, value] : result.set) set[pointer] = parsed(value);
  return set;
}

}  // namespace

ordered_json as_json(const RunResult& result) {
  ordered_json lanes = ordered_json::object(), checks = ordered_json::object();
  for (const LaneResult& lane : result.lanes) lanes[to_word(lane.lane)] = lane_json(lane);
  for (const auto& [check, verdict] : result.checks) checks[check] = verdict;
  const auto& d = result.first_divergence;
  const auto& f = result.failure;
  ordered_json json = {
      {"name", result.name},
      {"file", result.file},
      {"label", result.label},
      {"set", set_json(result)},
      {"world_size", result.world_size},
      {"seed", result.seed},
      {"reducer", result.reducer},
      {"communicator", result.communicator},
      {"algorithm", or_null(result.algorithm)},
      {"device", result.device},
      {"steps", result.steps},
      {"start_step", result.start_step},
      {"verdict", result.verdict},
      {"outcome", result.outcome},
      {"expected", result.expected},
      {"met", or_null(result.met)},
      {"undecided", result.undecided == Undecided::decided
                        ? ordered_json(nullptr)
                        : ordered_json(to_word(result.undecided))},
      {"unmet", result.unmet},
      {"duration_ms", result.duration_ms},
      {"lanes", lanes},
      {"first_divergence", d ? divergence_json(*d) : ordered_json(nullptr)},
      {"failure", f ? failure_json(*f) : ordered_json(nullptr)},
      {"checks", checks},
      {"check_reasons", result.check_reasons},
      {"common_checks", common_json(result)},
      {"kill", result.kill ? kill_json(*result.kill) : ordered_json(nullptr)},
      {"golden", parsed(result.golden)},
      {"losses", losses_json(result.losses)},
      {"metrics", metrics_json(result)},
      {"straggler", result.straggler ? as_json(*result.straggler) : ordered_json(nullptr)},
      {"final_hash", or_null(result.final_hash)},
      {"optimizer_bytes", result.optimizer_bytes},
      {"reducer_data", parsed(result.reducer_data)},
      {"run_dir", or_null(result.run_dir)},
      {"baseline", or_null(result.baseline)},
      {"again", result.again},
      {"told_command", or_null(result.told_command)}};
  if (result.predicted) json["predicted"] = predicted_json(*result.predicted);
  return json;
}

}  // namespace lockstep
