#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/plan/plan.h"

namespace lockstep {

// Which buckets a reducer will have once it has settled, as far as the plan alone can tell.

inline constexpr double kDefaultCapMib = 25;  // DDP's

// Does the reducer of this plan close buckets at a cap?
bool has_cap(const RunPlan& plan);

// The buckets of all steps but the first ones, in launch order: after DDP's rebuild in the order in
// which gradients become ready (layers from the last to the first, the parameters of a layer in
// reverse), where it never rebuilds those of construction. Nothing where they do not depend on a
// cap, or the model is not known. Real runs may swap parameters within a layer.
std::optional<BucketLayout> settled_layout(const RunPlan& plan, int64_t cap_bytes);

// Bytes of each bucket.
std::vector<int64_t> bytes_of(const RunPlan& plan, const BucketLayout& layout);

// One cap in MiB, with few digits, for each layout that there is, ascending: no two of them, and no
// cap at all, give another layout than one of these. At most `most` of the smallest are looked at.
std::vector<double> caps_of_distinct_layouts(const RunPlan& plan, size_t most = 4096);

// When gradients are ready in a backward that takes so long: by layer times, those of the plan
// (emulated compute) or else by the multiply-accumulates of the layers. Nothing for a model that is
// not known.
std::optional<std::vector<double>> planned_ready_ms(const RunPlan& plan, double backward_ms);

// Of emulated compute: when each bucket of the settled layout has its last gradient, from the begin
// of backward. Empty where the layout or the layers are not known.
std::map<int64_t, double> planned_bucket_ready_ns(const RunPlan& plan);

}  // namespace lockstep
