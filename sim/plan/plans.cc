#include "sim/plan/plans.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"
#include "sim/plan/plan.h"

namespace lockstep {
namespace {

std::string set_text(const Combination& combination) {
  std::string text;
  for (const auto& [axis, value] : combination.set)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", printable(axis), value);
  return text;
}

}  // namespace

void locate(const ScenarioFile& file, const std::vector<std::pair<std::string, std::string>>& set,
            InputError* error) {
  std::string pointer = error->pointer;
  for (const auto& [axis, value] : set)
    if (pointer_within(error->pointer, axis)) pointer = pointer_join("/matrix", axis);
  error->file = printable(file.path);
  for (;; pointer.resize(pointer.rfind('/'))) {
    for (const auto& [known, option] : file.options) {
      if (known != pointer) continue;
      error->file = option;
      return;
    }
    for (const auto& [known, at] : file.places) {
      if (known != pointer) continue;
      std::tie(error->line, error->column) = at;
      return;
    }
    if (pointer.empty()) return;
  }
}

Expected<std::vector<RunPlan>> make_plans(const ScenarioFile& file,
                                          const SimulatedSize& simulated) {
  std::vector<RunPlan> plans;
  plans.reserve(file.combinations.size());
  InputErrors errors;
  std::map<std::pair<std::string, std::string>, bool> seen;
  for (const Combination& combination : file.combinations) {
    auto plan = make_plan(combination.scenario, simulated);
    if (plan) {
      plan.value().set = combination.set;
      plan.value().file = file.path;
      plans.push_back(std::move(plan.value()));
      continue;
    }
    for (InputError error : plan.errors()) {
      if (!seen.emplace(std::pair(error.pointer, error.message), true).second) continue;
      locate(file, combination.set, &error);
      const std::string set = set_text(combination);
      if (!set.empty()) error.message += fmt::format(" (with {})", set);
      errors.push_back(std::move(error));
    }
  }
  if (!errors.empty()) return errors;
  return plans;
}

namespace {

using nlohmann::ordered_json;

std::string short_name(const std::string& pointer) {
  const size_t last = pointer.rfind('/');
  if (last == std::string::npos) return pointer;
  std::string word = pointer.substr(last + 1);
  if (word != "kind" || last == 0) return word;
  const size_t before = pointer.rfind('/', last - 1);
  return before == std::string::npos ? word : pointer.substr(before + 1, last - before - 1);
}

std::string plain(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() || !value.contains("kind"))
    return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string text = plain(value["kind"]);
  for (const auto& [key, option] : value.items())
    if (key != "kind") text += fmt::format(",{}={}", key, plain(option));
  return text;
}

// --set takes what parses as JSON, and else a string: quotes are needed only where it would parse.
std::string set_value(const std::string& json) {
  const ordered_json value = json_or_discarded(json);
  if (!value.is_string()) return json;
  const std::string text = value.get<std::string>();
  return json_or_discarded(text).is_discarded() ? text : json;
}

bool pins(const std::string& set, const std::string& pointer) {
  return set.compare(0, pointer.size() + 1, pointer + "=") == 0;
}

}  // namespace

std::string layer_name(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::string label_of(const AxisValues& set) {
  std::string label;
  for (const auto& [pointer, json] : set) {
    const ordered_json value = json_or_discarded(json);
    label += (label.empty() ? "" : " ") + short_name(pointer) + "=" +
             (value.is_discarded() ? json : plain(value));
  }
  return label;
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string again_command(const std::string& file, const std::vector<std::string>& sets,
                          const AxisValues& axes, uint64_t seed,
                          const std::vector<std::string>& further, const char* verb) {
  std::string command = fmt::format("lockstep {} {}", verb, shell_word(file));
  for (const std::string& word : further) command += " " + shell_word(word);
  for (const std::string& set : sets) command += " --set " + shell_word(set);
  for (const auto& axis : axes) {
    const bool pinned = std::any_of(sets.begin(), sets.end(),
                                    [&](const std::string& set) { return pins(set, axis.first); });
    if (!pinned) command += " --set " + shell_word(axis.first + "=" + set_value(axis.second));
  }
  return command + fmt::format(" --seed {}", seed);
}

}  // namespace lockstep
