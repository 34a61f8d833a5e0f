#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/renamed.h"
#include "scenarios/json/schema.h"
#include "scenarios/manifest.h"
#include "scenarios/scenario_schema.h"
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
  use("keeps_unused", rule.keeps_unused);
  use("fresh_shards", rule.fresh_shards);
  use("exchange_in_step", rule.exchange_in_step);
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
  Json& not_applicable = json["not_applicable"] = Json::object();
  for (const auto& [lane, why] : plan.not_applicable) not_applicable[to_word(lane)] = why;
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
  plain_members(plan, [&](const char* key, auto& value) { get_exact(document.at(key), value); });
  plan.set = pairs_from(document.at("set"));
  for (const auto& [lane, why] : document.at("not_applicable").items())
    plan.not_applicable.emplace_back(Json(lane).get<Lane>(), why.get<std::string>());
  const Json& rule = document.at("replay");
  rule_members(plan.replay, [&](const char* key, auto& value) { get_exact(rule.at(key), value); });
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

namespace {

// No real run had more; each of them costs memory before anything of it is read.
constexpr int64_t kMostRanks = 65'536;

// Whatever this version writes of any plan.
bool has_keys_of(const Json& pattern, const Json& document) {
  if (!document.is_object()) return false;
  for (const auto& [key, value] : pattern.items()) {
    if (!document.contains(key)) return false;
    if (key == "scenario" && !has_keys_of(value, document[key])) return false;
  }
  return true;
}

// Collects what is wrong with values that the types alone do not tell.
class Ranges {
 public:
  explicit Ranges(const std::string& file) : file_(file) {}

  void within(const char* pointer, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      bad(pointer, fmt::format("{}", value), fmt::format("{} to {}", least, most));
  }
  void word(const char* pointer, const std::string& value, const std::vector<std::string>& words) {
    if (std::find(words.begin(), words.end(), value) == words.end())
      bad(pointer, "\"" + shortened(value) + "\"", "one of " + quoted_list(words));
  }
  void bad(const std::string& pointer, const std::string& value, const std::string& allowed) {
    if (errors_.size() >= kMostErrors) return;
    errors_.push_back({file_, 0, 0, pointer, fmt::format("{} is {}", pointer, value), allowed});
  }
  const InputErrors& errors() const { return errors_; }

 private:
  const std::string& file_;
  InputErrors errors_;
};

void check_numbers(const RunPlan& plan, Ranges* ranges) {
  constexpr int64_t kMost = int64_t{1} << 53;
  ranges->within("/scenario/world_size", plan.scenario.world_size, 1, kMostRanks);
  ranges->within("/start_step", plan.start_step, 0, plan.scenario.steps);
  ranges->within("/double_start_step", plan.double_start_step, 0, plan.scenario.steps);
  ranges->within("/resumed_world_size", plan.resumed_world_size, 0, kMostRanks);
  ranges->within("/compare_every", plan.compare_every, 1, kMost);
  ranges->within("/record_capacity", plan.record_capacity, 0, int64_t{1} << 32);
  ranges->within("/stream_slots", plan.stream_slots, 0, kMost);
  ranges->within("/replay/first_bucket_bytes", plan.replay.first_bucket_bytes, 0, kMost);
  ranges->within("/replay/bucket_cap_bytes", plan.replay.bucket_cap_bytes, 0, kMost);
  ranges->within("/replay/rebuild_after_step", plan.replay.rebuild_after_step, 0, kMost);
  ranges->within("/replay/exchange_in_step", plan.replay.exchange_in_step, 0, kMost);
}

void check_words(const RunPlan& plan, Ranges* ranges) {
  const ReplayRule& rule = plan.replay;
  const std::vector<std::string> divisions = {"multiply_before", "divide_before", "divide_after",
                                              "none"};
  ranges->word("/replay/layout", rule.layout, {"registration", "one_bucket", "ddp"});
  ranges->word("/replay/division_first_step", rule.division_first_step, divisions);
  ranges->word("/replay/division_later", rule.division_later, divisions);
  ranges->word("/replay/added_as", rule.added_as, {"", "float16", "bfloat16"});
  for (const std::string& golden : plan.goldens)
    ranges->word("/goldens", golden, {"replay", "float64", "exact", "invariant", "one_device"});
  for (const auto& [axis, value] : plan.set)
    if (json_or_discarded(value).is_discarded())
      ranges->bad("/set", "\"" + shortened(value) + "\"", "JSON text");
}

void check_layers(const RunPlan& plan, const ModelManifest* manifest, Ranges* ranges) {
  if (plan.layer_times.empty()) return;
  const size_t layers = manifest ? manifest->layers.size() : 0;
  if (plan.layer_times.size() != layers)
    ranges->bad("/layer_times", fmt::format("{} layers", plan.layer_times.size()),
                fmt::format("{}, as the model has", layers));
  for (const LayerTime& time : plan.layer_times)
    for (const double ms : {time.forward_ms, time.backward_ms, time.ready_ms})
      if (!(ms >= 0 && ms <= 1e9))
        ranges->bad("/layer_times", fmt::format("{} ms", ms), "0 to 1e9 ms");
}

// Every parameter in one bucket at most.
void check_layout(const RunPlan& plan, const ModelManifest* manifest, Ranges* ranges) {
  const auto parameters =
      manifest ? static_cast<int64_t>(manifest->parameters.size()) : INT64_MAX - 1;
  std::set<int64_t> seen;
  for (const auto& bucket : plan.layout_at_construction)
    for (const int64_t parameter : bucket)
      if (parameter < 0 || parameter >= parameters || !seen.insert(parameter).second)
        ranges->bad("/layout_at_construction", fmt::format("parameter {}", parameter),
                    fmt::format("0 to {}, each once", parameters - 1));
}

InputErrors schema_errors(const Json& scenario, const std::string& file) {
  InputErrors errors;
  for (const SchemaProblem& problem : check_schema(scenario_schema().root(), scenario))
    errors.push_back({file, 0, 0, "/scenario" + problem.pointer, problem.message, problem.allowed});
  return errors;
}

}  // namespace

Expected<RunPlan> read_foreign_plan(std::string_view text, const std::string& path) {
  auto document = parse_foreign_json(text, path, "the plan of a kept run");
  if (!document) return document.errors();
  if (!has_keys_of(as_json(RunPlan{}), document.value()))
    return file_error(path, "was left by another version of lockstep");
  replace_renamed_words(&document.value()["scenario"]);
  if (InputErrors errors = schema_errors(document.value()["scenario"], path); !errors.empty())
    return errors;
  RunPlan plan;
  try {
    plan = take_plan(document.value());
  } catch (const nlohmann::json::exception& error) {
    return file_error(path, printable(error.what()), "the plan of a kept run");
  }
  Ranges ranges(path);
  check_numbers(plan, &ranges);
  check_words(plan, &ranges);
  if (!ranges.errors().empty()) return ranges.errors();
  const auto manifest = manifest_of(plan.scenario.model, plan.scenario.dtype);
  check_layers(plan, manifest.get(), &ranges);
  check_layout(plan, manifest.get(), &ranges);
  if (!ranges.errors().empty()) return ranges.errors();
  return plan;
}

}  // namespace lockstep
