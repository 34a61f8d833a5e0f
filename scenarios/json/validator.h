#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace lockstep {

// What valijson, an independent draft-07 validator, has against a scenario document: one line with
// the JSON pointer, or nothing. It takes about a tenth of a millisecond.
std::optional<std::string> validator_complaint(const nlohmann::ordered_json& document);

}  // namespace lockstep
