#pragma once

#include <cstddef>
#include <vector>

#include "sim/tools/program/recording.h"

namespace lockstep {

// What can be told of two tensors from their sketches, which are linear.

inline constexpr size_t kProjections = 4;  // before the norm

// Relative to the larger norm, or to `floor`; 1 where only one of them is there.
double sketch_distance(const Sketch& a, const Sketch& b, double floor);
// a = ratio * b, as nearly as may be; 0 where one of them is missing.
double sketch_ratio(const Sketch& a, const Sketch& b);
double largest_norm(const std::vector<Sketch>& tensors);

}  // namespace lockstep
