#include "scenarios/scenario_schema.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "scenarios/faults.h"
#include "scenarios/member_schema.h"
#include "scenarios/scenario_members.h"

namespace lockstep {
namespace {

using SchemaJson = nlohmann::ordered_json;

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

std::string schema_text(const SchemaJson& schema) {
  std::string text;
  print_schema(schema, 0, 0, &text);
  return text + "\n";
}

std::string scenario_schema_text() { return schema_text(scenario_schema().document()); }

}  // namespace lockstep
