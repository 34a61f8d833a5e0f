#pragma once

#include <nlohmann/json_fwd.hpp>

#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/json/pointer.h"
#include "scenarios/parse/document.h"
#include "scenarios/parse/matrix.h"

namespace lockstep {

// Checks every combination of a matrix and hands it to `kind`. `document` is the file after --set.
// Errors that several combinations share are reported once, at the place of the value: in the
// file, on the axis or on the command line.
void expand(const nlohmann::ordered_json& document, const Matrix& matrix,
            const std::vector<Choice>& choices, const Places& places, const DocumentKind& kind,
            InputErrors* errors);

}  // namespace lockstep
