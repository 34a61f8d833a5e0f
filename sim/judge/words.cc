#include "sim/judge/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "scenarios/json/json_text.h"

namespace lockstep {
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
