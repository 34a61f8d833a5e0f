#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/plan/plan.h"

namespace lockstep {

// When gradients are ready in a backward that takes so long: by layer times, those of the plan
// (emulated compute) or else by the multiply-accumulates of the layers. Nothing for a model that is
// not known.
std::optional<std::vector<double>> planned_ready_ms(const RunPlan& plan, double backward_ms);

// Of emulated compute: when each bucket of the settled layout has its last gradient, from the begin
// of backward. Empty where the layout or the layers are not known.
std::map<int64_t, double> planned_bucket_ready_ns(const RunPlan& plan);

}  // namespace lockstep
