#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// JSON pointers (RFC 6901): "/optimizer/lr" names a key, "" the whole document.

// The unescaped tokens; none if `pointer` is not one, or leads deeper than a document may be
// (kDeepestNesting).
std::optional<std::vector<std::string>> pointer_tokens(std::string_view pointer);
// pointer + "/" + the escaped token.
std::string pointer_join(std::string_view pointer, std::string_view token);
// Is `pointer` the same place as `prefix` or below it?
bool pointer_within(std::string_view pointer, std::string_view prefix);

// What stands there, or nullptr. Never throws.
const nlohmann::ordered_json* pointer_find(const nlohmann::ordered_json& document,
                                           std::string_view pointer);
// Puts `value` there, making objects (lists for "0" and "-") on the way; "-" or the size appends to
// a list. False if the way leads through something that is neither object nor list: `stuck` is its
// pointer then.
bool pointer_set(nlohmann::ordered_json* document, std::string_view pointer,
                 const nlohmann::ordered_json& value, std::string* stuck);

// Where every key and value of a document came from: a line and column of its file, or a --set.
class Places {
 public:
  struct Position {
    int64_t line = 0;
    int64_t column = 0;
  };

  explicit Places(std::string file) : file_(std::move(file)) {}

  void add(const std::string& pointer, Position key, Position value);
  // Everything at and below `pointer` comes from a command line option now.
  void replace(const std::string& pointer, const std::string& option);

  // Fills in file, line and column of an error about the value at `pointer`, or about the key
  // itself. What is not in the document is looked for above.
  void locate(std::string_view pointer, bool key, InputError* error) const;

  // Pointers with line and column of the value, and those with the option that gave the value.
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> all() const;
  std::vector<std::pair<std::string, std::string>> options() const;

 private:
  struct Entry {
    Position key, value;
    std::string option;  // "--set /steps=3", or empty: the file
  };
  std::string file_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace lockstep
