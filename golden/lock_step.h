#pragma once

#include <cstdint>
#include <functional>

#include "scenarios/workloads/batch_group.h"

namespace lockstep {

// Runs body(rank, group) for all ranks at once, a thread each, and returns when all are done. They
// meet in their group's all_gather. Rethrows the first exception that is no consequence of
// another's; a rank that ends while others still wait for it fails them.
void run_in_lock_step(int64_t ranks, const std::function<void(int64_t, BatchGroup&)>& body);

}  // namespace lockstep
