#include "sim/des/modelled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool is_index(const std::string& token) {
  return !token.empty() && std::all_of(token.begin(), token.end(),
                                       [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "/faults/3/kind" -> "/faults/*/kind".
std::string pattern_of(const std::string& pointer) {
  std::string pattern;
  for (size_t at = 0; at < pointer.size();) {
    const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    const std::string token = pointer.substr(at + 1, end - at - 1);
    pattern += "/" + (is_index(token) ? "*" : token);
    at = end;
  }
  return pattern;
}

bool covers(const ModelledKey& row, const std::string& pattern) {
  const std::string known = row.pointer;
  if (known == pattern) return true;
  return known.ends_with("/**") && pattern.starts_with(known.substr(0, known.size() - 2));
}

bool takes(const ModelledKey& row, const std::string& value) {
  return row.values.empty() || std::any_of(row.values.begin(), row.values.end(),
                                           [&](const char* known) { return value == known; });
}

std::string allowed_at(const std::string& pattern) {
  std::string allowed;
  for (const ModelledKey& row : modelled_keys()) {
    if (row.counts == Counts::refused || !covers(row, pattern)) continue;
    for (const char* value : row.values)
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", value);
  }
  return allowed.empty() ? "none" : allowed;
}

class Reader {
 public:
  explicit Reader(std::vector<std::string>* notes) : notes_(notes) {}

  void read(const Json& value, const std::string& pointer) {
    const bool is_list = value.is_array() && !value.empty() && value.front().is_structured();
    if (!value.is_object() && !is_list) return read_value(value, pointer);
    // A part of a kind that is not let in is one error, whatever else it says.
    if (value.contains("kind") && is_refused(value["kind"], pointer + "/kind"))
      return refuse(pointer + "/kind", value["kind"]);
    size_t index = 0;
    for (const auto& [key, member] : value.items())
      read(member, pointer + "/" + (is_list ? std::to_string(index++) : key));
  }

  InputErrors errors;

 private:
  static bool is_refused(const Json& value, const std::string& pointer) {
    const ModelledKey* row = row_for(pointer, text_of(value));
    return row == nullptr || row->counts == Counts::refused;
  }
  void read_value(const Json& value, const std::string& pointer) {
    if (value.is_array() && value.empty()) return;
    if (is_refused(value, pointer)) return refuse(pointer, value);
    const ModelledKey* row = row_for(pointer, text_of(value));
    if (row->counts == Counts::left_out)
      notes_->push_back(fmt::format("{} {}: {}", row->subject, text_of(value), row->why));
  }
  void refuse(const std::string& pointer, const Json& value) {
    const std::string pattern = pattern_of(pointer);
    std::string subject = pointer;
    for (const ModelledKey& row : modelled_keys())
      if (covers(row, pattern) && row.subject[0] != '\0') subject = row.subject;
    InputError error;
    error.pointer = pointer;
    error.message = fmt::format("{} {} cannot be simulated", subject, value.dump());
    error.allowed = allowed_at(pattern);
    errors.push_back(std::move(error));
  }

  std::vector<std::string>* notes_;
};

std::string values_text(const ModelledKey& row) {
  std::string text;
  for (const char* value : row.values)
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", value);
  return text.empty() ? "any" : text;
}

}  // namespace

const char* to_word(Counts counts) {
  switch (counts) {
    case Counts::time:
      return "counts";
    case Counts::nothing:
      return "no time";
    case Counts::left_out:
      return "left out, with a note";
    case Counts::refused:
      return "refused";
  }
  return "";
}

const ModelledKey* row_for(const std::string& pointer, const std::string& value) {
  const std::string pattern = pattern_of(pointer);
  bool is_named = false;
  for (const ModelledKey& row : modelled_keys()) {
    if (row.pointer != pattern) continue;
    if (takes(row, value)) return &row;
    is_named = true;
  }
  if (is_named) return nullptr;
  const ModelledKey* found = nullptr;  // the longest that covers it
  for (const ModelledKey& row : modelled_keys()) {
    if (row.pointer == pattern || !covers(row, pattern) || !takes(row, value)) continue;
    if (found == nullptr || std::string(row.pointer).size() > std::string(found->pointer).size())
      found = &row;
  }
  return found;
}

InputErrors not_modelled(const Scenario& scenario, std::vector<std::string>* notes) {
  Reader reader(notes);
  reader.read(as_json(scenario), "");
  return reader.errors;
}

std::string modelled_markdown() {
  std::string text = "| key | values | in virtual time | |\n| --- | --- | --- | --- |\n";
  for (const ModelledKey& row : modelled_keys())
    text += fmt::format("| `{}` | {} | {} | {} |\n", row.pointer, values_text(row),
                        to_word(row.counts), row.why);
  return text;
}

}  // namespace lockstep
