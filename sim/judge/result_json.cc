#include <cmath>
#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "sim/judge/judge.h"

namespace lockstep {
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
  for (const auto& [name, word] : result.common_checks) json[name] = word;
  return json;
}

ordered_json kill_json(const Kill& kill) {
  return {{"hidden", kill.hidden},
          {"caught", kill.caught},
          {"cause_right", or_null(kill.cause_right)},
          {"place_right", or_null(kill.place_right)}};
}

ordered_json divergence_json(const Divergence& d) {
  return {{"lane", d.lane},
          {"step", d.step},
          {"state_kind", or_null(d.state_kind)},
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
  for (const LaneResult& lane : result.lanes) lanes[lane.lane] = lane_json(lane);
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
