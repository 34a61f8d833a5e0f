#include "scenarios/json/places.h"

#include "scenarios/json/pointer.h"

namespace lockstep {

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
