#include "sim/tools/explore/result.h"

#include <nlohmann/json.hpp>

#include "scenarios/base/hash.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
std::optional<T> optional_of(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional<T>(json.get<T>());
}

Json failure_json(const ScheduleFailure& failure) {
  return {{"kind", failure.kind},
          {"rank", failure.rank < 0 ? Json(nullptr) : Json(failure.rank)},
          {"step", failure.step},
          {"what", failure.what}};
}

ScheduleFailure failure_from(const Json& json) {
  ScheduleFailure failure;
  failure.kind = json.at("kind").get<std::string>();
  failure.rank = optional_of<int64_t>(json.at("rank")).value_or(-1);
  failure.step = json.at("step").get<int64_t>();
  failure.what = json.at("what").get<std::string>();
  return failure;
}

Json smallest_json(const SmallestCase& smallest) {
  Json acts = Json::array();
  for (const ScheduledAct& act : smallest.acts)
    acts.push_back({{"rank", act.rank}, {"step", act.step}, {"operation", act.operation}});
  return {{"steps", smallest.steps},           {"world_size", smallest.world_size},
          {"parameters", smallest.parameters}, {"preemptions", smallest.preemptions},
          {"decisions", smallest.decisions},   {"failure", failure_json(smallest.failure)},
          {"interleaving", std::move(acts)}};
}

SmallestCase smallest_from(const Json& json) {
  SmallestCase smallest;
  smallest.steps = json.at("steps").get<int64_t>();
  smallest.world_size = json.at("world_size").get<int64_t>();
  smallest.parameters = json.at("parameters").get<std::vector<std::string>>();
  smallest.preemptions = json.at("preemptions").get<int64_t>();
  smallest.decisions = json.at("decisions").get<int64_t>();
  smallest.failure = failure_from(json.at("failure"));
  for (const Json& act : json.at("interleaving"))
    smallest.acts.push_back({act.at("rank").get<int64_t>(), act.at("step").get<int64_t>(),
                             act.at("operation").get<std::string>()});
  return smallest;
}

}  // namespace

uint64_t schedule_seed(uint64_t seed, int64_t index) {
  const uint64_t drawn = substream_seed(seed, "schedule", static_cast<uint64_t>(index));
  return (drawn & ((uint64_t{1} << 53) - 1)) | 1;
}

Json as_json(const ExploreSpec& spec) {
  return {{"schedules", spec.schedules},
          {"seed", spec.seed},
          {"exhaustive", spec.exhaustive},
          {"preemptions", or_null(spec.preemptions)},
          {"replay", or_null(spec.replay)},
          {"all", spec.all},
          {"jobs", spec.jobs}};
}

ExploreSpec explore_spec_from_json(const Json& json) {
  ExploreSpec spec;
  spec.schedules = json.at("schedules").get<int64_t>();
  spec.seed = json.at("seed").get<uint64_t>();
  spec.exhaustive = json.at("exhaustive").get<bool>();
  spec.preemptions = optional_of<int64_t>(json.at("preemptions"));
  spec.replay = optional_of<uint64_t>(json.at("replay"));
  spec.all = json.at("all").get<bool>();
  spec.jobs = json.at("jobs").get<int64_t>();
  return spec;
}

Json as_json(const ExploreResult& result) {
  Json findings = Json::array();
  for (const ExploreFinding& finding : result.findings) {
    Json json = failure_json(finding.failure);
    json["schedule"] = finding.schedule;
    json["seed"] = or_null(finding.seed);
    json["count"] = finding.count;
    json["smallest"] = smallest_json(finding.smallest);
    findings.push_back(std::move(json));
  }
  return {{"explored", result.explored},
          {"exhausted", result.exhausted},
          {"distinct", result.distinct},
          {"decisions", result.decisions},
          {"jobs", result.jobs},
          {"reference", result.reference},
          {"steps", result.steps},
          {"world_size", result.world_size},
          {"duration_ms", result.duration_ms},
          {"reproduced", result.reproduced},
          {"findings", std::move(findings)},
          {"signal", result.signal},
          {"broken", or_null(result.broken)},
          {"libraries", result.libraries}};
}

ExploreResult explore_result_from_json(const Json& json) {
  ExploreResult result;
  result.explored = json.at("explored").get<int64_t>();
  result.exhausted = json.at("exhausted").get<bool>();
  result.distinct = json.at("distinct").get<int64_t>();
  result.decisions = json.at("decisions").get<double>();
  result.jobs = json.at("jobs").get<int64_t>();
  result.reference = json.at("reference").get<std::string>();
  result.steps = json.at("steps").get<int64_t>();
  result.world_size = json.at("world_size").get<int64_t>();
  result.duration_ms = json.at("duration_ms").get<int64_t>();
  result.reproduced = json.at("reproduced").get<int64_t>();
  for (const Json& one : json.at("findings")) {
    ExploreFinding finding;
    finding.failure = failure_from(one);
    finding.schedule = one.at("schedule").get<int64_t>();
    finding.seed = optional_of<uint64_t>(one.at("seed"));
    finding.count = one.at("count").get<int64_t>();
    finding.smallest = smallest_from(one.at("smallest"));
    result.findings.push_back(std::move(finding));
  }
  result.signal = json.at("signal").get<int>();
  result.broken = optional_of<std::string>(json.at("broken")).value_or("");
  result.libraries = json.at("libraries").get<std::string>();
  return result;
}

}  // namespace lockstep
