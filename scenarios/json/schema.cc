#include "scenarios/json/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

const SchemaNode* SchemaNode::key(std::string_view name) const {
  for (const auto& [word, node] : keys)
    if (word == name) return node;
  return nullptr;
}

Schema::Schema(const char* text) : Schema(Json::parse(text)) {}
Schema::Schema(Json document) : document_(std::make_unique<Json>(std::move(document))) {
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

namespace {

using Json = nlohmann::ordered_json;
using SchemaProblems = std::vector<SchemaProblem>;

bool has_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  LOCKSTEP_CHECK(type == "number", "schema: type " + type + " is not known");
  return value.is_number();
}

bool has_type_of(const SchemaNode& node, const Json& value) {
  return node.types.empty() ||
         std::any_of(node.types.begin(), node.types.end(),
                     [&](const std::string& type) { return has_type(value, type); });
}

bool in_range(const SchemaNode& node, const Json& value) {
  if (!value.is_number()) return true;
  const double number = value.get<double>();
  return (!node.minimum || number >= *node.minimum) && (!node.maximum || number <= *node.maximum) &&
         (!node.above || number > *node.above);
}

bool is_word(const SchemaNode& node, const Json& value) {
  if (node.constant != nullptr && value != *node.constant) return false;
  if (node.words == nullptr) return true;
  for (const Json& word : *node.words)
    if (word == value) return true;
  return false;
}

size_t characters(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

bool has_size(const SchemaNode& node, const Json& value) {
  const auto within = [](size_t size, std::optional<int64_t> least, std::optional<int64_t> most) {
    const auto count = static_cast<int64_t>(size);
    return (!least || count >= *least) && (!most || count <= *most);
  };
  if (value.is_array()) return within(value.size(), node.min_items, node.max_items);
  if (value.is_object()) return within(value.size(), node.min_keys, {});
  if (!value.is_string() || !(node.min_length || node.max_length)) return true;
  return within(characters(value.get_ref<const std::string&>()), node.min_length, node.max_length);
}

std::string named(const std::string& pointer) {
  return pointer.empty() ? "the document" : shortened(pointer);
}

// Checks one document. With `problems` null it only answers whether there are any.
class Checker {
 public:
  explicit Checker(SchemaProblems* problems) : problems_(problems) {}

  bool check(const SchemaNode& node, const Json& value, const std::string& pointer) {
    if (full()) return false;
    if (!check_value(node, value, pointer)) return false;
    bool good = true;
    if (value.is_object()) good = check_object(node, value, pointer);
    if (value.is_array()) good = check_list(node, value, pointer);
    for (const SchemaNode::Branch& branch : node.branches) {
      if (!good && problems_ == nullptr) return false;
      const bool holds =
          branch.condition == nullptr || Checker(nullptr).check(*branch.condition, value, pointer);
      const SchemaNode* next = holds ? branch.then : branch.otherwise;
      if (next != nullptr) good = check(*next, value, pointer) && good;
    }
    return good;
  }

 private:
  // Nobody reads more.
  bool full() const { return problems_ != nullptr && problems_->size() >= kMostErrors; }

  bool report(std::string pointer, bool about_key, std::string message, std::string allowed) {
    if (full()) return false;
    problems_->push_back({std::move(pointer), about_key, std::move(message), std::move(allowed)});
    return false;
  }

  bool check_value(const SchemaNode& node, const Json& value, const std::string& pointer) {
    if (has_type_of(node, value) && in_range(node, value) && is_word(node, value) &&
        has_size(node, value))
      return true;
    if (problems_ == nullptr) return false;
    const std::string is = fmt::format("{} is {}", named(pointer), value_text(value));
    std::string allowed = allowed_text(node);
    if (value.is_string() && node.words != nullptr) {
      const std::string& word = value.get_ref<const std::string&>();
      if (node.refused != nullptr && node.refused->contains(word))
        return report(
            pointer, false,
            fmt::format("{}, which is refused: {}", is, (*node.refused)[word].get<std::string>()),
            allowed);
      const auto meant = closest_word(word, node.words->get<std::vector<std::string>>());
      if (meant && node.words->size() > 1)
        allowed += fmt::format(" (did you mean \"{}\"?)", *meant);
    }
    return report(pointer, false, is, allowed);
  }

  bool check_list(const SchemaNode& node, const Json& value, const std::string& pointer) {
    bool good = true;
    for (size_t i = 0; i < value.size() && node.items != nullptr; ++i) {
      if (!good && problems_ == nullptr) return false;
      good = check(*node.items, value[i], below(pointer, std::to_string(i))) && good;
    }
    std::set<Json> seen;
    for (size_t i = 0; i < value.size() && node.unique; ++i) {
      if (seen.insert(value[i]).second) continue;
      if (problems_ == nullptr) return false;
      good = report(below(pointer, std::to_string(i)), false,
                    fmt::format("{} is in {} twice", value_text(value[i]), named(pointer)),
                    "every value once");
    }
    return good;
  }

  bool check_object(const SchemaNode& node, const Json& value, const std::string& pointer) {
    bool good = true;
    for (const auto& [name, member] : value.items()) {
      if ((!good && problems_ == nullptr) || full()) return false;
      const SchemaNode* next = node.key(name);
      if (next == nullptr) next = node.other_keys;
      if (next != nullptr) {
        good = check(*next, member, below(pointer, name)) && good;
      } else if (!node.other_keys_allowed) {
        good = false;
        if (problems_ != nullptr) unknown_key(node, value, pointer, name);
      }
    }
    for (const std::string& name : node.required) {
      if (value.contains(name)) continue;
      good = false;
      if (problems_ != nullptr) missing_key(node, value, pointer, name);
    }
    return good;
  }

  // " in /optimizer of kind \"adam\""
  static std::string inside(const Json& value, const std::string& pointer) {
    std::string text = pointer.empty() ? "" : fmt::format(" in {}", shortened(pointer));
    if (!pointer.empty() && value.contains("kind") && value["kind"].is_string())
      text += fmt::format(" of kind {}", value_text(value["kind"]));
    return text;
  }

  void unknown_key(const SchemaNode& node, const Json& value, const std::string& pointer,
                   const std::string& name) {
    std::vector<std::string> known, free;
    for (const auto& [word, unused] : node.keys) {
      known.push_back(word);
      if (!value.contains(word)) free.push_back(word);
    }
    const auto meant = closest_word(name, known);
    std::string message =
        fmt::format("unknown key \"{}\"{}", shortened(name), inside(value, pointer));
    if (meant) message += fmt::format("; did you mean \"{}\"?", *meant);
    std::string allowed = meant ? "" : free.empty() ? "no more keys" : quoted_list(free);
    report(pointer_join(pointer, name), true, message, allowed);
    if (meant && !full()) problems_->back().meant = pointer_join(pointer, *meant);
  }

  void missing_key(const SchemaNode& node, const Json& value, const std::string& pointer,
                   const std::string& name) {
    const SchemaNode* key = node.key(name);
    report(pointer_join(pointer, name), false,
           fmt::format("missing key \"{}\"{}", name, inside(value, pointer)),
           key != nullptr ? allowed_text(*key) : "");
  }

  // Pointers are only made for messages.
  std::string below(const std::string& pointer, const std::string& name) const {
    return problems_ == nullptr ? pointer : pointer_join(pointer, name);
  }

  SchemaProblems* problems_;
};

}  // namespace

SchemaProblems check_schema(const SchemaNode& node, const Json& document,
                            const std::string& pointer) {
  if (matches_schema(node, document)) return {};
  SchemaProblems problems;
  Checker(&problems).check(node, document, pointer);
  // A key that was only misspelt is not missing as well.
  std::vector<std::string> misspelt;
  for (const SchemaProblem& problem : problems)
    if (!problem.meant.empty()) misspelt.push_back(problem.meant);
  std::erase_if(problems, [&](const SchemaProblem& problem) {
    return !problem.about_key && problem.message.starts_with("missing key") &&
           std::find(misspelt.begin(), misspelt.end(), problem.pointer) != misspelt.end();
  });
  return problems;
}

bool matches_schema(const SchemaNode& node, const Json& value) {
  return Checker(nullptr).check(node, value, "");
}

void fill_defaults(const SchemaNode& node, Json* value) {
  if (value->is_array() && node.items != nullptr)
    for (Json& member : *value) fill_defaults(*node.items, &member);
  if (value->is_object()) {
    for (const auto& [name, below] : node.keys) {
      auto member = value->find(name);
      if (member == value->end()) {
        if (below->default_value == nullptr) continue;
        (*value)[name] = *below->default_value;
        member = value->find(name);
      }
      fill_defaults(*below, &*member);
    }
  }
  for (const SchemaNode::Branch& branch : node.branches) {
    const bool holds = branch.condition == nullptr || matches_schema(*branch.condition, *value);
    const SchemaNode* next = holds ? branch.then : branch.otherwise;
    if (next != nullptr) fill_defaults(*next, value);
  }
}

namespace {

std::string range_text(const SchemaNode& node) {
  std::string text;
  const auto part = [&](const char* relation, std::optional<double> limit) {
    if (!limit) return;
    const std::optional<int64_t> whole = whole_of(*limit);
    const std::string number = whole ? std::to_string(*whole) : fmt::format("{}", *limit);
    text += fmt::format("{} {} {}", text.empty() ? "" : " and", relation, number);
  };
  part(">=", node.minimum);
  part(">", node.above);
  part("<=", node.maximum);
  return text;
}

std::string count_text(std::optional<int64_t> least, std::optional<int64_t> most) {
  if (least && most) return fmt::format(" of {} to {}", *least, *most);
  if (least) return fmt::format(" of at least {}", *least);
  if (most) return fmt::format(" of at most {}", *most);
  return "";
}

}  // namespace

std::string allowed_text(const SchemaNode& node) {
  if (node.constant != nullptr) return value_text(*node.constant);
  if (node.words != nullptr) {
    std::vector<std::string> words;
    for (const Json& word : *node.words) words.push_back(word.get<std::string>());
    return words.size() == 1 ? quoted_list(words) : "one of " + quoted_list(words);
  }
  if (node.types.empty()) return "a value";
  if (node.types.size() > 1)
    return "a value of type " + fmt::format("{}", fmt::join(node.types, ", "));
  const std::string& type = node.types[0];
  if (type == "integer") return "an integer" + range_text(node);
  if (type == "number") return "a number" + range_text(node);
  if (type == "boolean") return "true or false";
  if (type == "object") return "an object";
  if (type == "string") {
    const std::string count = count_text(node.min_length, node.max_length);
    return "a string" + (count.empty() ? "" : count + " characters");
  }
  const std::string count = count_text(node.min_items, node.max_items);
  std::string text = "a list" + (count.empty() ? " of" : count) + " values";
  if (node.items != nullptr && !node.items->types.empty())
    text += ", each " + allowed_text(*node.items);
  return text;
}

void add_errors(const std::vector<SchemaProblem>& problems, const Places& places,
                InputErrors* errors) {
  for (const SchemaProblem& problem : problems) {
    InputError error{"", 0, 0, printable(problem.pointer), problem.message, problem.allowed};
    places.locate(problem.pointer, problem.about_key, &error);
    errors->push_back(std::move(error));
  }
}

}  // namespace lockstep
