#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// JSON pointers (RFC 6901): "/optimizer/lr" names a key, "" the whole document.

// The unescaped tokens; none if `pointer` is not one.
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

}  // namespace lockstep
