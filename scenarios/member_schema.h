#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/json/json_text.h"
#include "scenarios/scenario.h"
#include "scenarios/scenario_members.h"

namespace lockstep {

// Adds what each member may be to the "properties" of an object. Without a description it stands
// in the parts' file.
struct MemberSchema {
  nlohmann::ordered_json& properties;

  template <class T>
  void operator()(const MemberRow& member, const T& value) {
    if (member.description == nullptr) return;
    nlohmann::ordered_json& json = properties[member.key];
    LOCKSTEP_CHECK(json.is_null(), std::string("the schema has this key twice: ") + member.key);
    json["description"] = member.description;
    put_type(member, value, &json);
    if (member.instead) {
      json["default"] = *member.instead;
    } else if (member.has_default) {
      if constexpr (std::is_same_v<T, std::vector<MutantSpec>> ||
                    std::is_same_v<T, std::vector<Fault>>)
        json["default"] = nlohmann::ordered_json::array();
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
    nlohmann::ordered_json& json = properties[member.key];
    json = {{"description", member.description}, {"type", "object"}};
    for (const LaneRow& row : lanes())
      json["properties"][row.word]["$ref"] = "#/definitions/lane_verdict";
    json["additionalProperties"] = false;
  }
  // Checks, each with the verdicts that it may have, are in the parts' file.
  void operator()(const MemberRow&, const std::vector<std::pair<std::string, CheckVerdict>>&) {}

 private:
  static nlohmann::ordered_json plain_number(double value) {
    const std::optional<int64_t> whole = whole_of(value);
    return whole ? nlohmann::ordered_json(*whole) : nlohmann::ordered_json(value);
  }

  static void put_bounds(const Bounds& bounds, const char* least, const char* most,
                         nlohmann::ordered_json* json) {
    if (bounds.least) (*json)[least] = plain_number(*bounds.least);
    if (bounds.most) (*json)[most] = plain_number(*bounds.most);
  }

  static nlohmann::ordered_json words_json(const char* words) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    std::istringstream text(words);
    for (std::string word; text >> word;) list.push_back(word);
    return list;
  }

  static void put_number(const char* type, const MemberRow& member, nlohmann::ordered_json* json) {
    (*json)["type"] = type;
    put_bounds(member.bounds, member.bounds.excludes_least ? "exclusiveMinimum" : "minimum",
               "maximum", json);
  }

  // A value, or an item of a list.
  static void put_type(const MemberRow&, const bool&, nlohmann::ordered_json* json) {
    (*json)["type"] = "boolean";
  }
  static void put_type(const MemberRow& member, const double&, nlohmann::ordered_json* json) {
    put_number("number", member, json);
  }
  template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  static void put_type(const MemberRow& member, const Integer&, nlohmann::ordered_json* json) {
    put_number("integer", member, json);
  }
  static void put_type(const MemberRow& member, const std::string&, nlohmann::ordered_json* json) {
    (*json)["type"] = "string";
    put_bounds(member.size, "minLength", "maxLength", json);
    if (member.words != nullptr) (*json)["enum"] = words_json(member.words);
  }
  static void put_type(const MemberRow& member, const Lane&, nlohmann::ordered_json* json) {
    put_type(member, std::string(), json);
  }
  static void put_type(const MemberRow& member, const Verdict&, nlohmann::ordered_json* json) {
    put_type(member, std::string(), json);
  }
  static void put_type(const MemberRow& member, const RunEnding&, nlohmann::ordered_json* json) {
    put_type(member, std::string(), json);
  }
  static void put_type(const MemberRow&, const MutantSpec&, nlohmann::ordered_json* json) {
    (*json)["$ref"] = "#/definitions/mutant";
  }
  static void put_type(const MemberRow&, const Fault&, nlohmann::ordered_json* json) {
    (*json)["$ref"] = "#/definitions/fault";
  }

  // Names and words are in a list once, and no name is empty.
  template <class T>
  static void put_type(const MemberRow& member, const std::vector<T>&,
                       nlohmann::ordered_json* json) {
    constexpr bool kTexts = std::is_same_v<T, std::string> || std::is_same_v<T, Lane>;
    (*json)["type"] = "array";
    put_bounds(member.size, "minItems", "maxItems", json);
    if (kTexts) (*json)["uniqueItems"] = true;
    MemberRow item = member;
    item.size = kTexts && member.words == nullptr ? kNotEmpty : Bounds{};
    nlohmann::ordered_json& items = (*json)["items"];
    if (member.each != nullptr) items["description"] = member.each;
    put_type(item, T{}, &items);
  }
  void refer(const MemberRow& member) {
    properties[member.key]["$ref"] = std::string("#/definitions/") + member.key;
  }
};

}  // namespace lockstep
