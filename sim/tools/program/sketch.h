#pragma once

#include <cstddef>
#include <vector>

#include "sim/tools/program/recording.h"

namespace lockstep {

// What can be told of two tensors from their sketches, which are linear.

inline constexpr size_t kProjections = 4;  // before the norm

// Relative to the larger norm, or to `floor`; 1 where only one of them is there.
double sketch_distance(const Sketch& a, const Sketch& b, double floor);
// Within the bound of double; where neither is there, too.
bool agree(const Sketch& a, const Sketch& b);
Sketch scaled_by(Sketch sketch, double factor);
// a = ratio * b, as nearly as may be; 0 where one of them is missing.
double sketch_ratio(const Sketch& a, const Sketch& b);
double largest_norm(const std::vector<Sketch>& tensors);

}  // namespace lockstep
