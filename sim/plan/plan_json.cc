#include <nlohmann/json.hpp>

#include "scenarios/base/error.h"
#include "scenarios/manifest.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Json pairs_json(const Pairs& pairs) {
  Json json = Json::object();
  for (const auto& [key, value] : pairs) json[key] = value;
  return json;
}

Pairs pairs_from(const Json& json) {
  Pairs pairs;
  for (const auto& [key, value] : json.items()) pairs.emplace_back(key, value.get<std::string>());
  return pairs;
}

template <class R, class F>
void rule_members(R& rule, F&& use) {
  use("layout", rule.layout);
  use("padded", rule.padded);
  use("gathered", rule.gathered);
  use("rebuild", rule.rebuild);
  use("first_bucket_bytes", rule.first_bucket_bytes);
  use("bucket_cap_bytes", rule.bucket_cap_bytes);
  use("division_first_step", rule.division_first_step);
  use("division_later", rule.division_later);
  use("added_as", rule.added_as);
  use("rebuild_after_step", rule.rebuild_after_step);
  use("broadcast_buffers", rule.broadcast_buffers);
  use("buffer_hook", rule.buffer_hook);
  use("ignored", rule.ignored);
  use("wrapped_modules", rule.wrapped_modules);
  use("joins", rule.joins);
  use("divide_by_active", rule.divide_by_active);
  use("restart_after_steps", rule.restart_after_steps);
  use("double_restart_after_steps", rule.double_restart_after_steps);
  use("algorithm", rule.algorithm);
}

template <class P, class F>
void plain_members(P& plan, F&& use) {
  use("file", plan.file);
  use("control", plan.control);
  use("export_dir", plan.export_dir);
  use("start_step", plan.start_step);
  use("double_start_step", plan.double_start_step);
  use("resumed_world_size", plan.resumed_world_size);
  use("threads", plan.threads);
  use("double_run", plan.double_run);
  use("rounding", plan.rounding);
  use("communication", plan.communication);
  use("goldens", plan.goldens);
  use("agreement", plan.agreement);
  use("compare_every", plan.compare_every);
  use("hash_between", plan.hash_between);
  use("shards", plan.shards);
  use("record_capacity", plan.record_capacity);
  use("stream_slots", plan.stream_slots);
}

Json layers_json(const LayerTimes& times) {
  Json json = Json::array();
  for (const LayerTime& time : times)
    json.push_back({{"layer", time.layer},
                    {"forward_ms", time.forward_ms},
                    {"backward_ms", time.backward_ms},
                    {"ready_ms", time.ready_ms}});
  return json;
}

LayerTimes layers_from(const Json& json) {
  LayerTimes times;
  for (const Json& layer : json)
    times.push_back({layer.at("layer").get<std::string>(), layer.at("forward_ms").get<double>(),
                     layer.at("backward_ms").get<double>(), layer.at("ready_ms").get<double>()});
  return times;
}

// For readers: when each gradient is ready, in milliseconds from the begin of backward.
Json ready_json(const RunPlan& plan) {
  Json json = Json::object();
  if (plan.layer_times.empty()) return json;
  const auto manifest = manifest_of(plan.scenario.model, plan.scenario.dtype);
  for (size_t i = 0; i < plan.layer_times.size(); ++i)
    for (const int64_t p : manifest->layers[i].parameters) {
      const std::string& name = manifest->parameters[static_cast<size_t>(p)].name;
      if (!is_frozen(plan.scenario, name)) json[name] = plan.layer_times[i].ready_ms;
    }
  return json;
}

}  // namespace

Json as_json(const RunPlan& plan) {
  Json json = Json::object();
  plain_members(plan, [&](const char* key, const auto& value) { json[key] = value; });
  json["set"] = pairs_json(plan.set);
  json["not_applicable"] = pairs_json(plan.not_applicable);
  Json rule = Json::object();
  rule_members(plan.replay, [&](const char* key, const auto& value) { rule[key] = value; });
  json["replay"] = std::move(rule);
  json["layer_times"] = layers_json(plan.layer_times);
  json["ready_ms"] = ready_json(plan);
  json["layout_at_construction"] =
      plan.layout_known ? Json(plan.layout_at_construction) : Json(nullptr);
  json["scenario"] = as_json(plan.scenario);
  return json;
}

RunPlan take_plan(const Json& document) {
  RunPlan plan;
  plain_members(plan, [&](const char* key, auto& value) { document.at(key).get_to(value); });
  plan.set = pairs_from(document.at("set"));
  plan.not_applicable = pairs_from(document.at("not_applicable"));
  const Json& rule = document.at("replay");
  rule_members(plan.replay, [&](const char* key, auto& value) { rule.at(key).get_to(value); });
  plan.layer_times = layers_from(document.at("layer_times"));
  const Json& layout = document.at("layout_at_construction");
  plan.layout_known = !layout.is_null();
  if (plan.layout_known) layout.get_to(plan.layout_at_construction);
  plan.scenario = take_scenario(document.at("scenario"));
  return plan;
}

RunPlan plan_from_json(const Json& document) try {
  return take_plan(document);
} catch (const nlohmann::json::exception& error) {
  check_failed("plan_from_json", __FILE__, __LINE__, error.what());
}

std::string to_text(const RunPlan& plan) {
  return as_json(plan).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
