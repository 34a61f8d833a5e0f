#include "scenarios/json/pointer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Index into a list of `size`; size itself for "-" and for the place behind the last.
std::optional<size_t> list_index(const std::string& token, size_t size) {
  if (token == "-") return size;
  size_t index = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), index);
  if (error != std::errc() || end != token.data() + token.size() || index > size) return {};
  return index;
}

}  // namespace

std::optional<std::vector<std::string>> pointer_tokens(std::string_view pointer) {
  std::vector<std::string> tokens;
  if (!pointer.empty() && pointer[0] != '/') return {};
  if (std::count(pointer.begin(), pointer.end(), '/') > kDeepestNesting) return {};
  for (size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      tokens.emplace_back();
    } else if (pointer[i] != '~') {
      tokens.back() += pointer[i];
    } else {
      const char next = i + 1 < pointer.size() ? pointer[++i] : '\0';
      if (next != '0' && next != '1') return {};
      tokens.back() += next == '0' ? '~' : '/';
    }
  }
  return tokens;
}

std::string pointer_join(std::string_view pointer, std::string_view token) {
  std::string joined(pointer);
  joined += '/';
  for (const char c : token) {
    if (c == '~')
      joined += "~0";
    else if (c == '/')
      joined += "~1";
    else
      joined += c;
  }
  return joined;
}

bool pointer_within(std::string_view pointer, std::string_view prefix) {
  return pointer.starts_with(prefix) &&
         (pointer.size() == prefix.size() || pointer[prefix.size()] == '/');
}

const Json* pointer_find(const Json& document, std::string_view pointer) {
  const auto tokens = pointer_tokens(pointer);
  if (!tokens) return nullptr;
  const Json* at = &document;
  for (const std::string& token : *tokens) {
    if (at->is_object()) {
      const auto found = at->find(token);
      if (found == at->end()) return nullptr;
      at = &*found;
    } else if (at->is_array()) {
      const auto index = list_index(token, at->size());
      if (!index || *index >= at->size()) return nullptr;
      at = &(*at)[*index];
    } else {
      return nullptr;
    }
  }
  return at;
}

bool pointer_set(Json* document, std::string_view pointer, const Json& value, std::string* stuck) {
  const auto tokens = pointer_tokens(pointer);
  if (!tokens) return false;
  Json* at = document;
  std::string way;
  for (const std::string& token : *tokens) {
    *stuck = way;
    if (at->is_null()) *at = token == "0" || token == "-" ? Json::array() : Json::object();
    if (at->is_array()) {
      const auto index = list_index(token, at->size());
      if (!index) return false;
      if (*index == at->size()) at->push_back(nullptr);
      at = &(*at)[*index];
    } else {
      if (!at->is_object()) return false;
      at = &(*at)[token];
    }
    way = pointer_join(way, token);
  }
  *at = value;
  return true;
}

void Places::add(const std::string& pointer, Position key, Position value) {
  entries_[pointer] = {key, value, ""};
}

void Places::replace(const std::string& pointer, const std::string& option) {
  for (auto at = entries_.lower_bound(pointer); at != entries_.end();) {
    if (!at->first.starts_with(pointer)) break;
    at = pointer_within(at->first, pointer) ? entries_.erase(at) : std::next(at);
  }
  entries_[pointer] = {{}, {}, option};
  // Objects that were made on the way to it.
  for (size_t cut = pointer.rfind('/'); cut != std::string::npos && cut > 0;) {
    const std::string above = pointer.substr(0, cut);
    if (!entries_.emplace(above, Entry{{}, {}, option}).second) break;
    cut = above.rfind('/');
  }
}

void Places::locate(std::string_view pointer, bool key, InputError* error) const {
  error->file = file_;
  for (bool self = true;; self = false) {
    const auto found = entries_.find(pointer);
    if (found != entries_.end()) {
      const Position& at = key && self ? found->second.key : found->second.value;
      error->line = at.line;
      error->column = at.column;
      if (!found->second.option.empty()) error->file = found->second.option;
      return;
    }
    if (pointer.empty()) return;
    pointer = pointer.substr(0, pointer.rfind('/'));
  }
}

std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> Places::all() const {
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> list;
  for (const auto& [pointer, entry] : entries_)
    if (entry.option.empty())
      list.emplace_back(pointer, std::pair(entry.value.line, entry.value.column));
  return list;
}

std::vector<std::pair<std::string, std::string>> Places::options() const {
  std::vector<std::pair<std::string, std::string>> list;
  for (const auto& [pointer, entry] : entries_)
    if (!entry.option.empty()) list.emplace_back(pointer, entry.option);
  return list;
}

}  // namespace lockstep
