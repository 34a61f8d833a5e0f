#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "scenarios/json/places.h"
#include "scenarios/parse/suite.h"

namespace lockstep {

// What --set did to the axes of the matrix.
struct SetEffects {
  std::set<std::string> pinned;   // these axes are gone
  std::set<std::string> changed;  // inside the values of these, some may be equal now
};

// Applies --full, which takes the document's block `full` out of it in any case, --set and --seed,
// in this order. A value at or above an axis pins that axis; one
// below an axis changes each of its values.
SetEffects apply_sets(const SuiteOptions& options, nlohmann::ordered_json* document, Places* places,
                      InputErrors* errors);

}  // namespace lockstep
