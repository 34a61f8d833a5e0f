#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace lockstep {

// Learning rate of step `step` (from 1), where `lr` is that of step 1 (of a warm-up: that of its
// end). Computed from the step alone, so that a resumed run goes on with the same numbers.
double lr_at(const Part& schedule, double lr, int64_t step);

}  // namespace lockstep
