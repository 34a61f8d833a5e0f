#include "sim/judge/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/base/hash.h"
#include "scenarios/json/json_text.h"
#include "sim/judge/checks.h"
#include "sim/judge/common_checks.h"
#include "sim/judge/divergence.h"
#include "sim/judge/expectation.h"
#include "sim/judge/failure.h"
#include "sim/judge/kill.h"
#include "sim/judge/lanes.h"
#include "sim/judge/losses.h"
#include "sim/judge/overdue.h"
#include "sim/judge/words.h"

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

bool any_lane(const RunResult& result, std::initializer_list<const char*> verdicts) {
  return std::any_of(result.lanes.begin(), result.lanes.end(), [&](const LaneResult& lane) {
    return std::find(verdicts.begin(), verdicts.end(), lane.verdict) != verdicts.end();
  });
}

// A stored golden that counts and is not met fails the run as a lane would. Empty: none was asked
// for; a comparison that cannot be read is inconclusive.
std::string golden_verdict(const RunResult& result) {
  if (result.golden.empty()) return "";
  const auto golden = json_or_discarded(result.golden);
  if (!golden.is_object() || !golden.contains("verdict")) return "inconclusive";
  for (const char* verdict : {"pass", "fail", "not_applicable"})
    if (golden["verdict"] == verdict) return verdict;
  return "inconclusive";
}

std::string observed_verdict(const RunResult& result) {
  const bool check_failed = std::any_of(result.checks.begin(), result.checks.end(),
                                        [](const auto& check) { return check.second == "fail"; });
  const std::string golden = golden_verdict(result);
  if (any_lane(result, {"fail"}) || check_failed || golden == "fail") return "fail";
  if (result.outcome == "failed" || any_lane(result, {"inconclusive", "void"}) ||
      golden == "inconclusive")
    return "inconclusive";
  return any_lane(result, {"pass"}) ? "pass" : "inconclusive";
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
                                       {"verdict", "inconclusive"},
                                       {"reason", "no rank came to compare with it"}};
  return none.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void say_interrupted(RunResult* result) {
  for (LaneResult& lane : result->lanes) {
    if (lane.verdict != "inconclusive") continue;
    lane.reason = lane.reason.empty() ? "interrupted" : "interrupted: " + lane.reason;
  }
}

// Lane whose arithmetic a second-run control puts to the test.
std::string lane_of_control(const std::string& control) {
  return control == "random_data" ? "exact" : "";
}

std::string verdict_of_lane(const RunResult& result, const std::string& lane) {
  for (const LaneResult& known : result.lanes)
    if (known.lane == lane) return known.verdict;
  return "";
}

// What a verdict that turned void or inconclusive does to what the author expected.
void judge_again(RunResult* result) {
  const std::string before = result->verdict;
  result->verdict = observed_verdict(*result);
  if (result->verdict == before) return;
  result->met = std::nullopt;
  result->undecided = Undecided::inconclusive;
  result->unmet.push_back(fmt::format("verdict: expected {}, got {}", before, result->verdict));
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
  if (result->outcome == "completed") result->straggler = find_straggler(models_of(timeline));
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
  result.outcome = result.failure || outcome.interrupted ? "failed" : "completed";
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
    result.expected = "what the version of LibTorch decides, which no rank has told";
  }
  decide_common_checks(outcome.plan, ranks, &result);
  if (expect != nullptr && outcome.plan.scenario.common_checks)
    result.kill = kill_of(*expect, result);
  return result;
}

void apply_control(const RunResult& control, std::vector<RunResult>* results) {
  const std::string lane_name = lane_of_control(control.control_of);
  const std::string seen = verdict_of_lane(control, lane_name);
  if (lane_name.empty() || seen == "fail") return;
  const bool missed = seen == "pass";
  for (RunResult& result : *results) {
    if (result.file != control.file) continue;
    for (LaneResult& lane : result.lanes) {
      if (lane.lane != lane_name || lane.verdict == "not_applicable") continue;
      lane.control = missed ? "missed" : "not_run";
      if (!missed && lane.verdict != "pass") continue;
      lane.verdict = missed ? "void" : "inconclusive";
      lane.reason = missed ? "the same run on random data, which must fail, passed"
                           : "the same run on random data, which must fail, did not end";
    }
    judge_again(&result);
  }
}

std::string overall_verdict(const std::vector<RunResult>& results) {
  const auto any = [&](const std::optional<bool>& met) {
    return std::any_of(results.begin(), results.end(), [&](const RunResult& result) {
      return result.met == met && result.baseline != "known";
    });
  };
  if (any(false)) return "fail";
  return results.empty() || any(std::nullopt) ? "inconclusive" : "pass";
}

}  // namespace lockstep
