#include "scenarios/json/renamed.h"

#include <nlohmann/json.hpp>

#include "scenarios/json/pointer.h"

namespace lockstep {
namespace {

using Document = nlohmann::ordered_json;

struct Renaming {
  const char* key;  // of the value; an axis of a matrix ends in it
  const char* old_word;
  const char* new_word;
};

// Renamed in 0.2.
constexpr Renaming kRenamings[] = {
    {"device", "stand_in", "fake"},
    {"kind", "other_bucket_cap", "mismatched_bucket_cap"},
    {"kind", "other_bucket_order", "mismatched_bucket_order"},
    {"kind", "other_dtype", "mismatched_dtype"},
    {"kind", "other_seed", "mismatched_seed"},
};

std::string last_token(const std::string& key) { return key.substr(key.rfind('/') + 1); }

void replace(const std::string& key, const std::string& pointer, Document* value,
             std::vector<RenamedWord>* replaced) {
  if (value->is_string()) {
    for (const Renaming& row : kRenamings) {
      if (key != row.key || value->get_ref<const std::string&>() != row.old_word) continue;
      replaced->push_back({pointer, row.old_word, row.new_word});
      *value = row.new_word;
      return;
    }
  } else if (value->is_array()) {
    for (size_t i = 0; i < value->size(); ++i)
      replace(key, pointer_join(pointer, std::to_string(i)), &(*value)[i], replaced);
  } else if (value->is_object()) {
    for (auto& [name, member] : value->items())
      replace(last_token(name), pointer_join(pointer, name), &member, replaced);
  }
}

}  // namespace

std::vector<RenamedWord> replace_renamed_words(Document* scenario) {
  std::vector<RenamedWord> replaced;
  replace("", "", scenario, &replaced);
  return replaced;
}

std::vector<RenamedWord> renamed_words() {
  std::vector<RenamedWord> words;
  for (const Renaming& row : kRenamings) words.push_back({row.key, row.old_word, row.new_word});
  return words;
}

}  // namespace lockstep
