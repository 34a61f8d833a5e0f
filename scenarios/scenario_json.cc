#include <nlohmann/json.hpp>

#include "scenarios/base/part.h"
#include "scenarios/scenario.h"
#include "scenarios/scenario_members.h"

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
  if (!json.empty() && json.front().is_string()) return json.get<std::vector<std::string>>();
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

// Of lanes or checks.
template <class Name, class Said>
using Verdicts = std::vector<std::pair<Name, Said>>;

// What is absent or empty has no key.
struct MemberWriter {
  Json& json;

  template <class T>
  void operator()(const MemberRow& member, const T& value) {
    json[member.key] = value;
  }
  template <class T>
  void operator()(const MemberRow& member, const std::optional<T>& value) {
    if (value) json[member.key] = *value;
  }
  template <class Name, class Said>
  void operator()(const MemberRow& member, const Verdicts<Name, Said>& verdicts) {
    for (const auto& [name, verdict] : verdicts)
      json[member.key][Json(name).template get<std::string>()] = verdict;
  }
  void operator()(const MemberRow& member, const Part& part) { json[member.key] = part_json(part); }
  void operator()(const MemberRow& member, const Timeouts& timeouts) {
    timeout_members(timeouts, MemberWriter{json[member.key]});
  }
  void operator()(const MemberRow& member, const std::vector<MutantSpec>& mutants) {
    Json& list = json[member.key] = Json::array();
    for (const MutantSpec& mutant : mutants)
      mutant_members(mutant, MemberWriter{list.emplace_back()});
  }
  void operator()(const MemberRow& member, const std::vector<Fault>& faults) {
    Json& list = json[member.key] = Json::array();
    for (const Fault& fault : faults)
      list.push_back(part_json({to_word(fault.kind), fault.options}));
  }
};

// Of a document without a key, an optional member stays empty; any other is an error, or keeps the
// value that it has where the document need not be complete.
struct MemberReader {
  const Json& json;
  bool complete = true;

  template <class T>
  void operator()(const MemberRow& member, T& value) {
    if (const Json* found = find(member)) found->get_to(value);
  }
  template <class T>
  void operator()(const MemberRow& member, std::optional<T>& value) {
    if (json.contains(member.key)) value = json[member.key].template get<T>();
  }
  template <class Name, class Said>
  void operator()(const MemberRow& member, Verdicts<Name, Said>& verdicts) {
    if (!json.contains(member.key)) return;
    for (const auto& [name, verdict] : json[member.key].items())
      verdicts.emplace_back(Json(name).get<Name>(), verdict.template get<Said>());
  }
  void operator()(const MemberRow& member, Part& part) {
    if (const Json* found = find(member)) part = part_from(*found);
  }
  void operator()(const MemberRow& member, Timeouts& timeouts) {
    if (const Json* found = find(member)) timeout_members(timeouts, MemberReader{*found, complete});
  }
  void operator()(const MemberRow& member, std::vector<MutantSpec>& mutants) {
    if (const Json* found = find(member))
      for (const Json& mutant : *found)
        mutant_members(mutants.emplace_back(), MemberReader{mutant});
  }
  void operator()(const MemberRow& member, std::vector<Fault>& faults) {
    if (const Json* found = find(member))
      for (const Json& fault : *found) faults.push_back(fault_from(fault));
  }

 private:
  const Json* find(const MemberRow& member) const {
    if (!complete && !json.contains(member.key)) return nullptr;
    return &json.at(member.key);
  }
};

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

// One that holds for all versions stands alone, as most files write it.
Json expectations_json(const std::vector<Expectation>& expectations) {
  if (expectations.size() == 1) return expect_json(expectations[0]);
  Json list = Json::array();
  for (const Expectation& expect : expectations) list.push_back(expect_json(expect));
  return list;
}

std::vector<Expectation> expectations_from(const Json& json) {
  if (json.is_object()) return {expectation_from(json)};
  std::vector<Expectation> expectations;
  for (const Json& expect : json) expectations.push_back(expectation_from(expect));
  return expectations;
}

// All members but `expect`.
Scenario members_from(const Json& document, bool complete) {
  Scenario scenario;
  const MemberReader reader{document, complete};
  plain_members(scenario, reader);
  part_members(scenario, reader);
  golden_member(scenario, reader);
  if (document.contains("join"))
    MemberReader{document["join"]}({.key = "divide_by"}, scenario.join_divide_by);
  return scenario;
}

}  // namespace

Expectation expectation_from(const Json& json) {
  Expectation expect;
  if (json.contains("when")) expect.libtorch = json["when"].value("/libtorch", "");
  expected_members(expect, MemberReader{json});
  if (json.contains("named")) named_members(expect, MemberReader{json["named"]});
  if (json.contains("straggler"))
    straggler_members(expect.straggler.emplace(), MemberReader{json["straggler"]});
  further_expected_members(expect, MemberReader{json});
  return expect;
}

Json as_json(const Scenario& scenario) {
  Json json = Json::object();
  plain_members(scenario, MemberWriter{json});
  part_members(scenario, MemberWriter{json});
  json["expect"] = expectations_json(scenario.expect);
  golden_member(scenario, MemberWriter{json});
  if (scenario.join_divide_by) json["join"]["divide_by"] = *scenario.join_divide_by;
  return json;
}

Scenario take_scenario(const Json& document) {
  Scenario scenario = members_from(document, true);
  scenario.expect = expectations_from(document.at("expect"));
  return scenario;
}

Scenario scenario_as_written(const Json& document) { return members_from(document, false); }

}  // namespace lockstep
