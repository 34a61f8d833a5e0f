#pragma once

#include <c10/core/ScalarType.h>

#include "reducer/comm_hook.h"

namespace lockstep {

// Divides by the number of ranks, then adds.
std::unique_ptr<CommHook> make_all_reduce_hook();
// Casts to `type` (half or bfloat16), divides, adds there, casts back.
std::unique_ptr<CommHook> make_half_hook(at::ScalarType type);
// As make_all_reduce_hook() before step `start_step`; from then on ranks keep their own gradients.
std::unique_ptr<CommHook> make_post_local_sgd_hook(int64_t start_step);
// PowerSGD: see power_sgd.cc.
std::unique_ptr<CommHook> make_power_sgd_hook(const CommHookOptions& options);

}  // namespace lockstep
