#pragma once

#include <string>

#include "sim/judge/judge.h"
#include "sim/report/style.h"

namespace lockstep {

// What `run` says of one run: what happened, who is to blame, and whether that was expected.
//   stop_in_backward  world_size=3
//   rank  ready ms  arrival ms ...       (metrics_table(), where it has metrics)
//   failed, as expected: rank 2 made no progress ...
//     because of it  ranks 0 1 failed as well
//     expected: failed, rank 2, hang, within 1500 ms: met
std::string run_text(const RunResult& run, const Style& style);

}  // namespace lockstep
