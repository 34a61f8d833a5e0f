#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

#include "scenarios/json/schema.h"

namespace lockstep {

// The schema of scenario files, made from the members of the structs
// (scenarios/scenario_members.h), the rows of the faults (scenarios/faults.h) and
// scenarios/scenario_parts_schema.json, in which "kinds" stands for a list of words and what each
// allows. Made at the first call.
const Schema& scenario_schema();

// As the shipped schemas are printed: what fits stands in one line.
std::string schema_text(const nlohmann::ordered_json& schema);
// The same as text: scenarios/schema.json.
std::string scenario_schema_text();

// What valijson, an independent draft-07 validator, has against a scenario document: one line with
// the JSON pointer, or nothing. It takes about a tenth of a millisecond.
std::optional<std::string> validator_complaint(const nlohmann::ordered_json& document);

}  // namespace lockstep
