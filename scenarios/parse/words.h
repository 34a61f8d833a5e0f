#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Valid UTF-8 in one line: bytes that are not text become U+FFFD, control characters spaces.
std::string printable(std::string_view bytes);

// Length of the valid UTF-8 sequence at the start of `bytes`; 0 if there is none.
size_t utf8_length(std::string_view bytes);

// A value as JSON text, cut short after about 60 characters.
std::string value_text(const nlohmann::ordered_json& value);

// The word that was probably meant: few letters changed, left out, added or swapped.
std::optional<std::string> closest_word(std::string_view word,
                                        const std::vector<std::string>& words);

// "a", "b" or "c"
std::string quoted_list(const std::vector<std::string>& words);

}  // namespace lockstep
