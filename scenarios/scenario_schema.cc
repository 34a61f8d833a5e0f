#include "scenarios/scenario_schema.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>
#include <type_traits>
#include <utility>

#include "scenarios/base/error.h"
#include "scenarios/faults.h"
#include "scenarios/scenario_members.h"

namespace lockstep {
namespace {

using SchemaJson = nlohmann::ordered_json;

SchemaJson plain_number(double value) {
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? SchemaJson(whole) : SchemaJson(value);
}

void put_bounds(const Bounds& bounds, const char* least, const char* most, SchemaJson* json) {
  if (bounds.least) (*json)[least] = plain_number(*bounds.least);
  if (bounds.most) (*json)[most] = plain_number(*bounds.most);
}

SchemaJson words_json(const char* words) {
  SchemaJson list = SchemaJson::array();
  std::istringstream text(words);
  for (std::string word; text >> word;) list.push_back(word);
  return list;
}

void put_number(const char* type, const MemberRow& member, SchemaJson* json) {
  (*json)["type"] = type;
  put_bounds(member.bounds, member.bounds.excludes_least ? "exclusiveMinimum" : "minimum",
             "maximum", json);
}

// A value, or an item of a list.
void put_type(const MemberRow&, const bool&, SchemaJson* json) { (*json)["type"] = "boolean"; }
void put_type(const MemberRow& member, const double&, SchemaJson* json) {
  put_number("number", member, json);
}
template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
void put_type(const MemberRow& member, const Integer&, SchemaJson* json) {
  put_number("integer", member, json);
}
void put_type(const MemberRow& member, const std::string&, SchemaJson* json) {
  (*json)["type"] = "string";
  put_bounds(member.size, "minLength", "maxLength", json);
  if (member.words != nullptr) (*json)["enum"] = words_json(member.words);
}
void put_type(const MemberRow& member, const Lane&, SchemaJson* json) {
  put_type(member, std::string(), json);
}
void put_type(const MemberRow& member, const Verdict&, SchemaJson* json) {
  put_type(member, std::string(), json);
}
void put_type(const MemberRow& member, const RunEnding&, SchemaJson* json) {
  put_type(member, std::string(), json);
}
void put_type(const MemberRow&, const MutantSpec&, SchemaJson* json) {
  (*json)["$ref"] = "#/definitions/mutant";
}
void put_type(const MemberRow&, const Fault&, SchemaJson* json) {
  (*json)["$ref"] = "#/definitions/fault";
}

// Names and words are in a list once, and no name is empty.
template <class T>
void put_type(const MemberRow& member, const std::vector<T>&, SchemaJson* json) {
  constexpr bool kTexts = std::is_same_v<T, std::string> || std::is_same_v<T, Lane>;
  (*json)["type"] = "array";
  put_bounds(member.size, "minItems", "maxItems", json);
  if (kTexts) (*json)["uniqueItems"] = true;
  MemberRow item = member;
  item.size = kTexts && member.words == nullptr ? kNotEmpty : Bounds{};
  SchemaJson& items = (*json)["items"];
  if (member.each != nullptr) items["description"] = member.each;
  put_type(item, T{}, &items);
}

// Adds what each member may be to the "properties" of an object. Without a description it stands
// in the parts' file.
struct MemberSchema {
  SchemaJson& properties;

  template <class T>
  void operator()(const MemberRow& member, const T& value) {
    if (member.description == nullptr) return;
    SchemaJson& json = properties[member.key];
    LOCKSTEP_CHECK(json.is_null(), std::string("the schema has this key twice: ") + member.key);
    json["description"] = member.description;
    put_type(member, value, &json);
    if (member.instead) {
      json["default"] = *member.instead;
    } else if (member.has_default) {
      if constexpr (std::is_same_v<T, std::vector<MutantSpec>> ||
                    std::is_same_v<T, std::vector<Fault>>)
        json["default"] = SchemaJson::array();
      else if constexpr (std::is_same_v<T, double>)
        json["default"] = plain_number(value);
      else
        json["default"] = value;
    }
  }
  template <class T>
  void operator()(MemberRow member, const std::optional<T>&) {
    member.has_default = false;
    (*this)(member, T{});
  }
  void operator()(const MemberRow& member, const Part&) { refer(member); }
  void operator()(const MemberRow& member, const Timeouts&) { refer(member); }
  void operator()(const MemberRow& member, const std::vector<std::pair<Lane, LaneVerdict>>&) {
    SchemaJson& json = properties[member.key];
    json = {{"description", member.description}, {"type", "object"}};
    for (const LaneRow& row : lanes())
      json["properties"][row.word]["$ref"] = "#/definitions/lane_verdict";
    json["additionalProperties"] = false;
  }
  // Checks, each with the verdicts that it may have, are in the parts' file.
  void operator()(const MemberRow&, const std::vector<std::pair<std::string, CheckVerdict>>&) {}

 private:
  void refer(const MemberRow& member) {
    properties[member.key]["$ref"] = std::string("#/definitions/") + member.key;
  }
};

// "kinds" of a definition: the words of its kind, and a branch for each. A kind that is the default
// may be left out, unless the definition says otherwise.
void expand_kinds(SchemaJson* definition) {
  const SchemaJson kinds = (*definition)["kinds"];
  definition->erase("kinds");
  SchemaJson& kind = (*definition)["properties"]["kind"];
  const bool must_be_given = definition->contains("required");
  SchemaJson words = SchemaJson::array(), branches = SchemaJson::array();
  for (const auto& [word, allowed] : kinds.items()) {
    words.push_back(word);
    SchemaJson is_kind = {{"properties", {{"kind", {{"const", word}}}}}};
    if (must_be_given || kind.value("default", "") != word)
      is_kind["required"] = SchemaJson::array({"kind"});
    SchemaJson then = {{"properties", {{"kind", {{"const", word}}}}}};
    if (allowed.contains("properties")) then["properties"].update(allowed["properties"]);
    for (const auto& [key, value] : allowed.items())
      if (key != "properties") then[key] = value;
    then["additionalProperties"] = false;
    branches.push_back({{"if", is_kind}, {"then", then}});
  }
  kind["enum"] = words;
  (*definition)["allOf"] = branches;
}

SchemaJson& properties_of(SchemaJson* definition) { return (*definition)["properties"]; }

SchemaJson scenario_schema_json() {
  SchemaJson schema = SchemaJson::parse(scenario_parts_schema_text());
  SchemaJson& definitions = schema["definitions"];
  for (auto& [name, definition] : definitions.items())
    if (definition.contains("kinds")) expand_kinds(&definition);
  const Scenario scenario;
  const Expectation expect;
  const MutantSpec mutant;
  const ExpectedStraggler straggler;
  // A scenario first, then what is made of it: the order in which a user is told of keys.
  const SchemaJson others = std::exchange(properties_of(&schema), SchemaJson::object());
  MemberSchema root{properties_of(&schema)};
  root.properties["$schema"] = others["$schema"];
  plain_members(scenario, root);
  part_members(scenario, root);
  golden_member(scenario, root);
  for (const auto& [key, value] : others.items()) root.properties[key] = value;
  timeout_members(scenario.timeouts, MemberSchema{properties_of(&definitions["timeouts"])});
  mutant_members(mutant, MemberSchema{properties_of(&definitions["mutant"])});
  SchemaJson& expected = properties_of(&definitions["expectation"]);
  expected_members(expect, MemberSchema{expected});
  further_expected_members(expect, MemberSchema{expected});
  named_members(expect, MemberSchema{properties_of(&expected["named"])});
  straggler_members(straggler, MemberSchema{properties_of(&expected["straggler"])});
  definitions["fault"] = fault_schema();
  return schema;
}

// What fits stands in one line, and so does what a single key may be.
void print_schema(const SchemaJson& json, size_t indent, size_t before, std::string* text) {
  constexpr size_t kWidth = 118, kWidthOfKey = 300;
  const std::string line = json.dump();
  const auto is_object = [](const SchemaJson& value) { return value.is_object(); };
  const bool is_flat = json.is_object() && std::none_of(json.begin(), json.end(), is_object);
  if (!json.is_structured() || indent + before + line.size() <= kWidth ||
      (is_flat && line.size() < kWidthOfKey)) {
    *text += line;
    return;
  }
  *text += json.is_object() ? "{" : "[";
  const char* separator = "\n";
  for (const auto& [key, value] : json.items()) {
    const std::string name = json.is_object() ? SchemaJson(key).dump() + ": " : "";
    *text += separator + std::string(indent + 2, ' ') + name;
    print_schema(value, indent + 2, name.size(), text);
    separator = ",\n";
  }
  *text += "\n" + std::string(indent, ' ') + (json.is_object() ? "}" : "]");
}

}  // namespace

const Schema& scenario_schema() {
  static const Schema schema(scenario_schema_json());
  return schema;
}

std::string scenario_schema_text() {
  std::string text;
  print_schema(scenario_schema().document(), 0, 0, &text);
  return text + "\n";
}

}  // namespace lockstep
