#pragma once

#include <string>

#include "sim/report/sweep_document.h"

namespace lockstep {

// Step time over the bucket cap, one series for each reducer, world size and what else is varied,
// with 95 % intervals; what has no cap is a level. Where no two caps were measured, over the world
// size. Recommended caps are marked. A published sweep stands beside the metric that it is of: in
// the same chart, or in a second one.
std::string sweep_svg(const SweepDocument& document);

}  // namespace lockstep
