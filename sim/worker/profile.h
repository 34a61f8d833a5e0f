#pragma once

#include <cstdint>
#include <string>

#include "scenarios/layer_times.h"
#include "sim/plan/plan.h"

namespace lockstep {

// Times of each layer of the plan's model, which must be a shipped one, on one core of this
// machine: of rank 0's first samples, as many as one forward has, the median of `repetitions`
// passes after two that do not count. Call prepare_libtorch(1) before. Blocks for so long.
//
// A layer's forward goes from the first operation that is given one of its parameters to that of
// the next layer; its backward from the last gradient of the layer above to its own last gradient.
// What has no parameters (an activation, attention, a head with tied weights) thus counts for its
// neighbour, before it in forward and after it in backward, and all of a pass is some layer's.
LayerProfile measure_layers(const RunPlan& plan, int64_t repetitions);

}  // namespace lockstep
