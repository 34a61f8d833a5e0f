#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"
#include "scenarios/parse/matrix.h"
#include "scenarios/parse/suite.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The Scenario of a document that matches the schema and has its defaults filled in. Problems: more
// than one size of the batch, or none. `directory`: of the scenario's file, absolute.
Scenario to_scenario(const nlohmann::ordered_json& document, const std::string& directory,
                     std::vector<SchemaProblem>* problems);

// Checks and types every combination of a matrix. `document` is the file after --set; `directory`
// that of the file, absolute. `reads_data_dir` becomes true where options.data_dir is used. Errors
// that several combinations share are reported once, at the place of the value: in the scenario, on
// the axis or on the command line.
std::vector<Combination> expand(const nlohmann::ordered_json& document, const Matrix& matrix,
                                const std::vector<Choice>& choices, const Places& places,
                                const std::string& directory, const SuiteOptions& options,
                                bool* reads_data_dir, InputErrors* errors);

}  // namespace lockstep
