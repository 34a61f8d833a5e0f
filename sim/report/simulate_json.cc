#include <cmath>
#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "sim/report/simulate_document.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const SimulatedNumbers& numbers) {
  return {{"steps", numbers.steps},
          {"step_ms", numbers.step_ms},
          {"step_p50_ms", numbers.p50_ms},
          {"step_p95_ms", numbers.p95_ms},
          {"step_p99_ms", numbers.p99_ms},
          {"step_longest_ms", numbers.longest_ms},
          {"backward_ms", numbers.backward_ms},
          {"exposed_ms", numbers.exposed_ms},
          {"comm_ms", numbers.comm_ms},
          {"overlap", or_null(numbers.overlap)},
          {"skew_ms", or_null(numbers.skew_ms)},
          {"total_s", numbers.total_s}};
}

Json json_of(const SimulatedFailure& failure) {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  const bool timed_out =
      failure.cause == EndedBy::lateness || failure.cause == EndedBy::short_timeout;
  Json json = {{"cause", to_word(failure.cause)},
               {"rank", or_null(failure.rank)},
               {"step", failure.step},
               {"place", failure.place},
               {"dead", failure.cause == EndedBy::death},
               {"bucket", failure.bucket}};
  json["timeout_ms"] = timed_out ? Json(ms(failure.timeout_ns)) : Json(nullptr);
  json["apart_ms"] = timed_out ? Json(ms(failure.apart_ns)) : Json(nullptr);
  json["transfer_ms"] = timed_out ? Json(ms(failure.transfer_ns)) : Json(nullptr);
  json["at_ms"] = static_cast<double>(failure.at_ns) * 1e-6;
  json["known_ms"] = failure.known_ns == kNever
                         ? Json(nullptr)
                         : Json(static_cast<double>(failure.known_ns) * 1e-6);
  return json;
}

Json json_of(const SimulatedLine::OverDays& days) {
  constexpr double kHours = 1e-9 / 3600;
  const LongRunNumbers& numbers = days.numbers;
  return {{"work_hours", static_cast<double>(days.run.work_ns) * kHours},
          {"hosts", days.run.hosts},
          {"mtbf_hours", static_cast<double>(days.run.mtbf_ns) * kHours},
          {"checkpoint_s", static_cast<double>(days.run.checkpoint_ns) * 1e-9},
          {"checkpoint_every_s", static_cast<double>(days.run.interval_ns) * 1e-9},
          {"best_interval", days.best_interval},
          {"restart_s", static_cast<double>(days.run.restart_ns) * 1e-9},
          {"runs", numbers.runs},
          {"failures", numbers.failures},
          {"elapsed_hours", numbers.elapsed_ns * kHours},
          {"low_hours", numbers.low_ns * kHours},
          {"high_hours", numbers.high_ns * kHours},
          {"expected_hours", days.expected_ns * kHours},
          {"lost_hours", numbers.lost_ns * kHours},
          {"checkpoint_hours", numbers.checkpoints_ns * kHours},
          {"restart_hours", numbers.restarts_ns * kHours},
          {"goodput", numbers.goodput}};
}

Json json_of(const SimulatedLine& line) {
  Json json = {{"name", line.scenario}, {"label", line.label},     {"world_size", line.ranks},
               {"steps", line.steps},   {"reducer", line.reducer}, {"algorithm", line.algorithm},
               {"engine", line.engine}};
  json["bucket_cap_mb"] = or_null(line.cap_mb);
  json["buckets"] = line.buckets;
  json["tail_mb"] = line.tail_mb;
  json["numbers"] = line.numbers.steps > 0 ? json_of(line.numbers) : Json(nullptr);
  json["efficiency"] = or_null(line.efficiency);
  json["straggler_ms"] = or_null(line.straggler_ms);
  json["timeout_chance"] = line.timeout_chance ? Json{{"value", line.timeout_chance->value},
                                                      {"low", line.timeout_chance->low},
                                                      {"high", line.timeout_chance->high}}
                                               : Json(nullptr);
  json["over_days"] = line.over_days ? json_of(*line.over_days) : Json(nullptr);
  json["failure"] = line.failure ? json_of(*line.failure) : Json(nullptr);
  json["notes"] = line.notes;
  json["judged"] = line.judged ? as_json(*line.judged) : Json(nullptr);
  return json;
}

}  // namespace

nlohmann::ordered_json as_json(const SimulateDocument& document) {
  Json json = {{"format", "lockstep_simulation"}, {"version", 1}, {"seed", document.seed}};
  json["simulated_machine"] = document.simulated;
  json["machine"] = {{"cpu", document.machine.cpu}, {"cores", document.machine.cores}};
  json["elapsed_s"] = document.elapsed_s;
  json["runs"] = Json::array();
  for (const SimulatedLine& line : document.lines) json["runs"].push_back(json_of(line));
  json["recommended_cap_mb"] = or_null(document.recommended_cap_mb);
  json["recommendation"] = document.recommendation;
  json["exit_code"] = document.exit_code;
  return json;
}

}  // namespace lockstep
