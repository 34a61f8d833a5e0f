#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Which samples of the data set belong to step `step` (from 1), in the order of the global batch:
// consecutive batches of scenario.batch_size, starting again at sample 0 when data.samples is used
// up. data.samples is a multiple of batch_size.
std::vector<int64_t> batch_indices(const Scenario& scenario, int64_t step);

// The part of that batch which rank `rank` trains on: contiguous, batch_size / world_size samples.
std::vector<int64_t> shard_indices(const Scenario& scenario, int64_t step, int64_t rank);

}  // namespace lockstep
