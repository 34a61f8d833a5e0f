#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "scenarios/base/error.h"
#include "scenarios/parse/places.h"

namespace lockstep {

// Deeper nesting is refused, so that no input can exhaust the stack.
inline constexpr int kDeepestNesting = 100;

// Reads JSON with // and /* */ comments (no trailing commas) and notes where each key and value
// stands. Duplicate keys are errors at the second one; of errors that end the reading there is
// one, and `document` stays as it was. Columns count characters. Any bytes may come: messages are
// valid UTF-8. True if there was no error; `places` may be nullptr.
bool read_json(std::string_view text, const std::string& file, nlohmann::ordered_json* document,
               Places* places, InputErrors* errors);

}  // namespace lockstep
