#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/printable.h"

namespace lockstep {

// A value as JSON text, cut short after about 60 characters.
std::string value_text(const nlohmann::ordered_json& value);

// printable(), cut short after about 60 characters.
std::string shortened(std::string_view bytes);

// The word that was probably meant: few letters changed, left out, added or swapped.
std::optional<std::string> closest_word(std::string_view word,
                                        const std::vector<std::string>& words);

// "a", "b" or "c"
std::string quoted_list(const std::vector<std::string>& words);

}  // namespace lockstep
