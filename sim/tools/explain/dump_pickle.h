#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

#include "scenarios/base/error.h"

namespace lockstep {

// The plain values of a pickle (protocols 2 to 5): dictionaries, lists, tuples, texts, numbers, as
// PyTorch's flight recorder writes them. Whatever would name or call code is an error with the
// byte where it stands; nothing is executed. Time and memory grow linearly with `bytes`, and
// nesting is limited as in JSON.
Expected<nlohmann::ordered_json> read_plain_pickle(std::string_view bytes, const std::string& file);

}  // namespace lockstep
