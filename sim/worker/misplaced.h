#pragma once

#include "sim/worker/wrong_gradients.h"

namespace lockstep {

// Does every wrong element hold a value that the golden run's gradients have in another place, as
// when two buckets are exchanged, or a view begins at another element?
bool is_misplaced(const MismatchContext& context, const WrongGradients& wrong);

// Is the run what comes out where this rank's own gradients were added in each other's places?
bool is_own_misplaced(const WrongGradients& wrong, int64_t world_size);

}  // namespace lockstep
