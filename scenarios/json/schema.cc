#include "scenarios/json/schema.h"

#include <nlohmann/json.hpp>

#include "scenarios/base/check.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema_texts.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

const SchemaNode* SchemaNode::key(std::string_view name) const {
  for (const auto& [word, node] : keys)
    if (word == name) return node;
  return nullptr;
}

Schema::Schema(const char* text) : document_(std::make_unique<Json>(Json::parse(text))) {
  root_ = compile(*document_);
}
Schema::~Schema() = default;

const SchemaNode* Schema::compile(const Json& json) {
  if (json.contains("$ref")) {
    const std::string reference = json["$ref"].get<std::string>();
    const auto known = by_reference_.find(reference);
    if (known != by_reference_.end()) return known->second;
    const Json* target = pointer_find(*document_, reference.substr(1));
    LOCKSTEP_CHECK(target != nullptr, "schema: nothing at " + reference);
    return by_reference_[reference] = compile(*target);
  }
  SchemaNode* node = nodes_.emplace_back(std::make_unique<SchemaNode>()).get();
  for (const auto& [word, value] : json.items()) keyword(word, value, node);
  if (json.contains("if")) {
    const auto branch = [&](const char* word) {
      return json.contains(word) ? compile(json[word]) : nullptr;
    };
    node->branches.push_back({branch("if"), branch("then"), branch("else")});
  }
  return node;
}

void Schema::keyword(const std::string& word, const Json& value, SchemaNode* node) {
  const auto number = [&] { return value.get<double>(); };
  const auto count = [&] { return value.get<int64_t>(); };
  static const char* kElsewhere[] = {"$schema",  "$id", "title", "description", "definitions",
                                     "examples", "if",  "then",  "else"};
  for (const char* known : kElsewhere)
    if (word == known) return;
  if (word == "type") {
    if (value.is_array())
      node->types = value.get<std::vector<std::string>>();
    else
      node->types = {value.get<std::string>()};
  } else if (word == "enum") {
    node->words = &value;
  } else if (word == "const") {
    node->constant = &value;
  } else if (word == "default") {
    node->default_value = &value;
  } else if (word == "x-refused") {
    node->refused = &value;
  } else if (word == "minimum") {
    node->minimum = number();
  } else if (word == "maximum") {
    node->maximum = number();
  } else if (word == "exclusiveMinimum") {
    node->above = number();
  } else if (word == "minItems") {
    node->min_items = count();
  } else if (word == "maxItems") {
    node->max_items = count();
  } else if (word == "minLength") {
    node->min_length = count();
  } else if (word == "maxLength") {
    node->max_length = count();
  } else if (word == "minProperties") {
    node->min_keys = count();
  } else if (word == "uniqueItems") {
    node->unique = value.get<bool>();
  } else if (word == "items") {
    node->items = compile(value);
  } else if (word == "properties") {
    for (const auto& [name, below] : value.items()) node->keys.emplace_back(name, compile(below));
  } else if (word == "additionalProperties") {
    node->other_keys_allowed = !value.is_boolean() || value.get<bool>();
    if (value.is_object()) node->other_keys = compile(value);
  } else if (word == "required") {
    node->required = value.get<std::vector<std::string>>();
  } else if (word == "allOf") {
    for (const Json& part : value) node->branches.push_back({nullptr, compile(part), nullptr});
  } else {
    LOCKSTEP_CHECK(false, "schema: keyword " + word + " is not known");
  }
}

const Schema& scenario_schema() {
  static const Schema schema(scenario_schema_text());
  return schema;
}

}  // namespace lockstep
