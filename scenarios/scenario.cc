#include "scenarios/scenario.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "scenarios/base/error.h"
#include "scenarios/base/part.h"
#include "scenarios/base/text.h"

namespace lockstep {
namespace {

// The numbers at the start of `text`, which is left with what follows them.
std::vector<int> take_numbers(std::string_view* text) {
  std::vector<int> numbers;
  for (std::string_view rest = *text;;) {
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || number < 0) return numbers;
    numbers.push_back(number);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    *text = rest;
    if (!rest.starts_with('.')) return numbers;
    rest.remove_prefix(1);
  }
}

// As far as the bound says anything.
std::strong_ordering compare(std::vector<int> version, const std::vector<int>& bound) {
  version.resize(bound.size());
  return std::lexicographical_compare_three_way(version.begin(), version.end(), bound.begin(),
                                                bound.end());
}

bool satisfies_bounds(const std::string& comparison, std::strong_ordering order) {
  if (comparison == "<") return std::is_lt(order);
  if (comparison == "<=") return std::is_lteq(order);
  if (comparison == ">") return std::is_gt(order);
  if (comparison == ">=") return std::is_gteq(order);
  return std::is_eq(order);
}

}  // namespace

std::optional<VersionRange> VersionRange::parse(const std::string& text) {
  VersionRange range;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.starts_with('+') && word.size() > 1) {
      range.tags_.push_back(word);
      continue;
    }
    const size_t digits = word.find_first_not_of("<>=");
    if (digits == std::string::npos) return std::nullopt;
    Bound bound{word.substr(0, digits), {}};
    static const std::vector<std::string> kComparisons = {"", "=", "<", "<=", ">", ">="};
    std::string_view rest = std::string_view(word).substr(digits);
    bound.numbers = take_numbers(&rest);
    if (bound.numbers.empty() || !rest.empty() ||
        std::find(kComparisons.begin(), kComparisons.end(), bound.comparison) == kComparisons.end())
      return std::nullopt;
    range.bounds_.push_back(std::move(bound));
  }
  if (range.bounds_.empty() && range.tags_.empty()) return std::nullopt;
  return range;
}

bool VersionRange::contains(const std::string& version) const {
  std::string_view rest = version;
  const std::vector<int> numbers = take_numbers(&rest);
  const auto holds = [&](const Bound& bound) {
    return satisfies_bounds(bound.comparison, compare(numbers, bound.numbers));
  };
  const auto has = [&](const std::string& tag) { return rest.find(tag) != std::string_view::npos; };
  return !numbers.empty() && std::all_of(bounds_.begin(), bounds_.end(), holds) &&
         std::all_of(tags_.begin(), tags_.end(), has);
}

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

using Verdicts = std::vector<std::pair<std::string, std::string>>;

// One list of members for each struct, which writing and reading walk alike. What is absent or
// empty has no key.
struct MemberWriter {
  Json& json;
  template <class T>
  void operator()(const char* key, const T& value) {
    json[key] = value;
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) json[key] = *value;
  }
  void operator()(const char* key, const Verdicts& verdicts) {
    for (const auto& [name, verdict] : verdicts) json[key][name] = verdict;
  }
};

struct MemberReader {
  const Json& json;
  template <class T>
  void operator()(const char* key, T& value) {
    json.at(key).get_to(value);
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) {
    if (json.contains(key)) value = json[key].template get<T>();
  }
  void operator()(const char* key, Verdicts& verdicts) {
    if (!json.contains(key)) return;
    for (const auto& [name, verdict] : json[key].items())
      verdicts.emplace_back(name, verdict.get<std::string>());
  }
};

template <class M, class F>
void mutant_members(M& mutant, F use) {
  use("kind", mutant.kind);
  use("rank", mutant.rank);
  use("step", mutant.step);
  use("bucket", mutant.bucket);
  use("tensor", mutant.tensor);
  use("element", mutant.element);
  use("bit", mutant.bit);
  use("other", mutant.other);
}

template <class E, class F>
void expected_members(E& expect, F use) {
  use("verdict", expect.verdict);
  use("lanes", expect.lanes);
  use("checks", expect.checks);
  use("cause", expect.cause);
  use("step", expect.step);
  use("tensor", expect.tensor);
  use("bucket", expect.bucket);
  use("outcome", expect.outcome);
  use("primary_rank", expect.primary_rank);
  use("kind", expect.kind);
}

template <class E, class F>
void further_expected_members(E& expect, F use) {
  use("within_ms", expect.within_ms);
  use("issue", expect.issue);
}

template <class E, class F>
void named_members(E& expect, F use) {
  use("collective", expect.named_collective);
  use("bucket", expect.named_bucket);
  use("phase", expect.named_phase);
}

template <class S, class F>
void straggler_members(S& straggler, F use) {
  use("rank", straggler.rank);
  use("class", straggler.late_class);
}

Json expect_json(const Expectation& expect) {
  Json json = Json::object(), named, straggler;
  if (!expect.libtorch.empty()) json["when"]["/libtorch"] = expect.libtorch;
  expected_members(expect, MemberWriter{json});
  named_members(expect, MemberWriter{named});
  if (!named.is_null()) json["named"] = named;
  if (expect.straggler) straggler_members(*expect.straggler, MemberWriter{json["straggler"]});
  further_expected_members(expect, MemberWriter{json});
  return json;
}

Expectation expect_from(const Json& json) {
  Expectation expect;
  if (json.contains("when")) expect.libtorch = json["when"].at("/libtorch").get<std::string>();
  expected_members(expect, MemberReader{json});
  if (json.contains("named")) named_members(expect, MemberReader{json["named"]});
  if (json.contains("straggler"))
    straggler_members(expect.straggler.emplace(), MemberReader{json["straggler"]});
  further_expected_members(expect, MemberReader{json});
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
void plain_members(S& s, F use) {
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
void durations(T& t, F use) {
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
  plain_members(scenario, MemberWriter{json});
  parts(scenario, [&](const char* key, const Part& part) { json[key] = part_json(part); });
  durations(scenario.timeouts, MemberWriter{json["timeouts"]});
  json["mutants"] = Json::array();
  for (const MutantSpec& mutant : scenario.mutants)
    mutant_members(mutant, MemberWriter{json["mutants"].emplace_back()});
  json["faults"] = Json::array();
  for (const Fault& fault : scenario.faults)
    json["faults"].push_back(part_json({to_word(fault.kind), fault.options}));
  json["expect"] = expectations_json(scenario.expect);
  MemberWriter{json}("golden", scenario.golden);
  if (scenario.join_divide_by) json["join"]["divide_by"] = *scenario.join_divide_by;
  return json;
}

Scenario take_scenario(const Json& document) {
  Scenario scenario;
  plain_members(scenario, MemberReader{document});
  parts(scenario, [&](const char* key, Part& part) { part = part_from(document.at(key)); });
  durations(scenario.timeouts, MemberReader{document.at("timeouts")});
  for (const Json& mutant : document.at("mutants"))
    mutant_members(scenario.mutants.emplace_back(), MemberReader{mutant});
  for (const Json& fault : document.at("faults")) scenario.faults.push_back(fault_from(fault));
  scenario.expect = expectations_from(document.at("expect"));
  MemberReader{document}("golden", scenario.golden);
  if (document.contains("join"))
    MemberReader{document["join"]}("divide_by", scenario.join_divide_by);
  return scenario;
}

Scenario scenario_from_json(const Json& document) try {
  return take_scenario(document);
} catch (const nlohmann::json::exception& error) {
  check_failed("scenario_from_json", __FILE__, __LINE__, error.what());
}

bool averages_gradients(const Scenario& scenario, int64_t step) {
  const Part& hook = scenario.comm_hook;
  return hook.kind != "post_local_sgd" || step < hook.options.integer("start_step");
}

bool averages_parameters(const Scenario& scenario, int64_t step) {
  const Part& averaging = scenario.model_averaging;
  if (averaging.kind == "none") return false;
  const int64_t since = step - 1 - averaging.options.integer("warmup_steps");
  return since >= 0 && since % averaging.options.integer("period") == 0;
}

bool has_own_states(const Scenario& scenario) {
  return scenario.model_averaging.kind != "none" || !averages_gradients(scenario, scenario.steps);
}

int64_t device_of(const Scenario& scenario, const std::string& parameter) {
  if (scenario.devices_per_rank == 1 || scenario.model.kind != "mlp") return 0;
  const auto layers = static_cast<int64_t>(scenario.model.options.integers("hidden").size()) + 1;
  const int64_t layer = std::atoll(parameter.c_str() + 2) - 1;  // "fc2.weight"
  return layer * scenario.devices_per_rank / layers;
}

}  // namespace lockstep
