#pragma once

#include <vector>

#include "sim/calibrate/row_context.h"
#include "sim/calibrate/row_explanation.h"

namespace lockstep {

inline constexpr double kMostOneRankUs = 1e5;  // a parameter, where nothing else could explain it

// The machine between the explanations of a row, which gives it too: half of the excess is
// contention, or, where collectives are too short for that, half of what links explain; of the rest
// half is the reducer's, and what is left then is on every step and on links, with half of what a
// bucket may cost and of how far ranks may be spread.
Guess middle_of(const RowContext& row, const std::vector<RowExplanation>& explanations);

}  // namespace lockstep
