#pragma once

#include "sim/worker/wrong_gradients.h"

namespace lockstep {

// Numbers in a sketch: what it can tell apart are fewer ranks than that.
inline constexpr size_t kSketchSize = 48;

// The wrong elements' values, each with a random sign, added up kSketchSize times. Sums of values
// have the sums of their sketches: how a result was put together from the gradients of all ranks
// can be solved for from these alone. Empty where the elements are too few to tell.
std::vector<double> sketch_of(const WrongGradients& wrong, const WrongGradients::Values& values);

}  // namespace lockstep
