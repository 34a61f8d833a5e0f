#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "scenarios/json/schema.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The Scenario of a document that matches the schema and has its defaults filled in. Problems: more
// than one size of the batch, or none. `directory`: of the scenario's file, absolute.
Scenario to_scenario(const nlohmann::ordered_json& document, const std::string& directory,
                     std::vector<SchemaProblem>* problems);

}  // namespace lockstep
