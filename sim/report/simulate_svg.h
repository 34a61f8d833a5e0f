#pragma once

#include <string>

#include "sim/report/simulate_document.h"

namespace lockstep {

// A prediction as a picture: step time over caps, a series a world size, with the recommended cap;
// over world sizes where they vary alone, and beside it the efficiency where both do. Bands reach
// from the median step to the 95th percentile. Lines without a step are left out.
std::string simulate_svg(const SimulateDocument& document);

}  // namespace lockstep
