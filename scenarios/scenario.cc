#include "scenarios/scenario.h"

#include <nlohmann/json.hpp>

#include "scenarios/base/check.h"
#include "scenarios/base/names.h"
#include "scenarios/own_options.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json part_json(const Part& part) {
  Json json = {{"kind", part.kind}};
  const auto put_all = [](const Options& options, Json* into) {
    for (const auto& [key, value] : options.all())
      std::visit([&, &name = key](const auto& v) { (*into)[name] = v; }, value);
  };
  put_all(without_own_options(part.options), &json);
  if (const Options own = own_options(part.options); !own.all().empty())
    put_all(own, &json["options"]);
  return json;
}

OptionValue option_value(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  for (const Json& value : json)
    if (!value.is_number_integer()) return json.get<std::vector<double>>();
  return json.get<std::vector<int64_t>>();
}

}  // namespace

Part part_from(const Json& json) {
  Part part;
  for (const auto& [key, value] : json.items()) {
    if (key == "kind")
      part.kind = value.get<std::string>();
    else if (value.is_object())
      set_own_options(part_from(value).options, &part.options);
    else
      part.options.set(key, option_value(value));
  }
  return part;
}

Fault fault_from(const Json& json) {
  Part part = part_from(json);
  const auto kind = fault_kind_from(part.kind);
  // Of what did not pass the schema, which only take_scenario() is given.
  if (!kind) throw Json::other_error::create(501, "no fault is called " + part.kind, &json);
  return {*kind, std::move(part.options)};
}

namespace {

template <class T>
void put(Json* json, const char* key, const std::optional<T>& value) {
  if (value) (*json)[key] = *value;
}
template <class T>
void take(const Json& json, const char* key, std::optional<T>* value) {
  if (json.contains(key)) *value = json[key].get<T>();
}

Json mutant_json(const MutantSpec& mutant) {
  Json json = {{"kind", mutant.kind}};
  put(&json, "rank", mutant.rank);
  put(&json, "step", mutant.step);
  put(&json, "bucket", mutant.bucket);
  put(&json, "tensor", mutant.tensor);
  put(&json, "element", mutant.element);
  put(&json, "bit", mutant.bit);
  put(&json, "other", mutant.other);
  return json;
}

MutantSpec mutant_from(const Json& json) {
  MutantSpec mutant;
  mutant.kind = json.at("kind").get<std::string>();
  take(json, "rank", &mutant.rank);
  take(json, "step", &mutant.step);
  take(json, "bucket", &mutant.bucket);
  take(json, "tensor", &mutant.tensor);
  take(json, "element", &mutant.element);
  take(json, "bit", &mutant.bit);
  take(json, "other", &mutant.other);
  return mutant;
}

Json expect_json(const Expectation& expect) {
  Json json = Json::object();
  if (!expect.libtorch.empty()) json["when"]["/libtorch"] = expect.libtorch;
  put(&json, "verdict", expect.verdict);
  for (const auto& [lane, verdict] : expect.lanes) json["lanes"][lane] = verdict;
  for (const auto& [check, verdict] : expect.checks) json["checks"][check] = verdict;
  put(&json, "cause", expect.cause);
  put(&json, "step", expect.step);
  put(&json, "tensor", expect.tensor);
  put(&json, "bucket", expect.bucket);
  put(&json, "outcome", expect.outcome);
  put(&json, "primary_rank", expect.primary_rank);
  put(&json, "kind", expect.kind);
  put(&json["named"], "collective", expect.named_collective);
  put(&json["named"], "bucket", expect.named_bucket);
  put(&json["named"], "phase", expect.named_phase);
  if (json["named"].is_null()) json.erase("named");
  if (expect.straggler) {
    put(&json["straggler"], "rank", expect.straggler->rank);
    json["straggler"]["class"] = expect.straggler->late_class;
  }
  put(&json, "within_ms", expect.within_ms);
  put(&json, "issue", expect.issue);
  return json;
}

Expectation expect_from(const Json& json) {
  Expectation expect;
  if (json.contains("when")) expect.libtorch = json["when"].at("/libtorch").get<std::string>();
  take(json, "verdict", &expect.verdict);
  if (json.contains("lanes"))
    for (const auto& [lane, verdict] : json["lanes"].items())
      expect.lanes.emplace_back(lane, verdict.get<std::string>());
  if (json.contains("checks"))
    for (const auto& [check, verdict] : json["checks"].items())
      expect.checks.emplace_back(check, verdict.get<std::string>());
  take(json, "cause", &expect.cause);
  take(json, "step", &expect.step);
  take(json, "tensor", &expect.tensor);
  take(json, "bucket", &expect.bucket);
  take(json, "outcome", &expect.outcome);
  take(json, "primary_rank", &expect.primary_rank);
  take(json, "kind", &expect.kind);
  if (json.contains("named")) {
    take(json["named"], "collective", &expect.named_collective);
    take(json["named"], "bucket", &expect.named_bucket);
    take(json["named"], "phase", &expect.named_phase);
  }
  if (json.contains("straggler")) {
    const Json& straggler = json["straggler"];
    expect.straggler.emplace(
        ExpectedStraggler{straggler.at("class").get<std::string>(), std::nullopt});
    take(straggler, "rank", &expect.straggler->rank);
  }
  take(json, "within_ms", &expect.within_ms);
  take(json, "issue", &expect.issue);
  return expect;
}

// One that holds for all versions stands alone, as most files write it.
Json expectations_json(const std::vector<Expectation>& expectations) {
  if (expectations.size() == 1) return expect_json(expectations[0]);
  Json list = Json::array();
  for (const Expectation& expect : expectations) list.push_back(expect_json(expect));
  return list;
}

std::vector<Expectation> expectations_from(const Json& json) {
  if (json.is_object()) return {expect_from(json)};
  std::vector<Expectation> expectations;
  for (const Json& expect : json) expectations.push_back(expect_from(expect));
  return expectations;
}

// The members that are JSON values as they stand, in the order of the document. `use` is called
// with the key and the member.
template <class S, class F>
void plain_members(S& s, F&& use) {
  use("name", s.name);
  use("what", s.what);
  use("seed", s.seed);
  use("world_size", s.world_size);
  use("steps", s.steps);
  use("batch_size", s.batch_size);
  use("dtype", s.dtype);
  use("device", s.device);
  use("golden_device", s.golden_device);
  use("devices_per_rank", s.devices_per_rank);
  use("streams", s.streams);
  use("device_ids", s.device_ids);
  use("threads", s.threads);
  use("rng", s.rng);
  use("rank_seeds", s.rank_seeds);
  use("zero_grad", s.zero_grad);
  use("requantize", s.requantize);
  use("compare_every", s.compare_every);
  use("accumulate_steps", s.accumulate_steps);
  use("accumulate_sync", s.accumulate_sync);
  use("frozen", s.frozen);
  use("ignored", s.ignored);
  use("wrapped_modules", s.wrapped_modules);
  use("averaging", s.averaging);
  use("time_scale", s.time_scale);
  use("common_checks", s.common_checks);
  use("lanes", s.lanes);
}

template <class S, class F>
void parts(S& s, F&& use) {
  use("model", s.model);
  use("data", s.data);
  use("split", s.split);
  use("loss", s.loss);
  use("optimizer", s.optimizer);
  use("optimizer_sharding", s.optimizer_sharding);
  use("reducer", s.reducer);
  use("communicator", s.communicator);
  use("lr_schedule", s.lr_schedule);
  use("clipping", s.clipping);
  use("loss_scaling", s.loss_scaling);
  use("comm_hook", s.comm_hook);
  use("model_averaging", s.model_averaging);
  use("checkpoint", s.checkpoint);
  use("compute", s.compute);
}

template <class T, class F>
void durations(T& t, F&& use) {
  use("collective_ms", t.collective_ms);
  use("construction_ms", t.construction_ms);
  use("step_ms", t.step_ms);
  use("rendezvous_ms", t.rendezvous_ms);
  use("run_ms", t.run_ms);
}

}  // namespace

int64_t ranks_of(const Scenario& scenario) {
  return scenario.reducer.kind == "data_parallel" ? 1 : scenario.world_size;
}

bool shares_optimizer(const Scenario& scenario) {
  return scenario.optimizer_sharding.kind != "none" || scenario.reducer.kind == "sharded";
}

bool is_frozen(const Scenario& scenario, const std::string& parameter) {
  return is_named_in(scenario.frozen, parameter);
}

bool is_ignored(const Scenario& scenario, const std::string& tensor) {
  return is_named_in(scenario.ignored, tensor);
}

Json as_json(const Scenario& scenario) {
  Json json = Json::object();
  plain_members(scenario, [&](const char* key, const auto& value) { json[key] = value; });
  parts(scenario, [&](const char* key, const Part& part) { json[key] = part_json(part); });
  durations(scenario.timeouts,
            [&](const char* key, int64_t value) { json["timeouts"][key] = value; });
  json["mutants"] = Json::array();
  for (const MutantSpec& mutant : scenario.mutants) json["mutants"].push_back(mutant_json(mutant));
  json["faults"] = Json::array();
  for (const Fault& fault : scenario.faults)
    json["faults"].push_back(part_json({to_word(fault.kind), fault.options}));
  json["expect"] = expectations_json(scenario.expect);
  put(&json, "golden", scenario.golden);
  if (scenario.join_divide_by) json["join"]["divide_by"] = *scenario.join_divide_by;
  return json;
}

Scenario take_scenario(const Json& document) {
  Scenario scenario;
  plain_members(scenario, [&](const char* key, auto& value) { document.at(key).get_to(value); });
  parts(scenario, [&](const char* key, Part& part) { part = part_from(document.at(key)); });
  const Json& timeouts = document.at("timeouts");
  durations(scenario.timeouts,
            [&](const char* key, int64_t& value) { timeouts.at(key).get_to(value); });
  for (const Json& mutant : document.at("mutants")) scenario.mutants.push_back(mutant_from(mutant));
  for (const Json& fault : document.at("faults")) scenario.faults.push_back(fault_from(fault));
  scenario.expect = expectations_from(document.at("expect"));
  take(document, "golden", &scenario.golden);
  if (document.contains("join")) take(document["join"], "divide_by", &scenario.join_divide_by);
  return scenario;
}

Scenario scenario_from_json(const Json& document) try {
  return take_scenario(document);
} catch (const nlohmann::json::exception& error) {
  check_failed("scenario_from_json", __FILE__, __LINE__, error.what());
}

}  // namespace lockstep
