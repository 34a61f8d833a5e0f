#pragma once

#include <optional>

#include "sim/tools/explain/arrival_steps.h"

namespace lockstep {

// The same arrivals as the GPUs saw them, where dumps tell how long each rank ran in each call
// (PyTorch's duration_ms, of jobs that time their calls: TORCH_NCCL_ENABLE_TIMING): a collective
// that nobody leaves before all came ends for all at once, so who ran in it for the shortest time
// came last. No clock counts, and no call that a host only queued. Left out are collectives that
// some leave before others came, and those right behind such, whose lateness may be of these.
// Without duration_ms the recorder's two times of discovery are taken, where they are no watchdog's
// rounds (who looks ten times a second sees both at once). None: where dumps do not tell.
std::optional<GroupArrivals> arrivals_by_runs(const GroupArrivals& called);

}  // namespace lockstep
