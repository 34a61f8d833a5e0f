#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/judge/judge.h"
#include "sim/report/text_style.h"

namespace lockstep {

// What `run` says of one run: what happened, who is to blame, and whether that was expected.
//   stop_in_backward  world_size=3
//   rank  ready ms  arrival ms ...       (metrics_table(), where it has metrics)
//   failed, as expected: rank 2 made no progress ...
//     as a result  ranks 0 1 failed as well
//     expected: failed, rank 2, hang, within 1500 ms: met
std::string run_text(const RunResult& run, const Style& style);

// A row for each rank with its means per step, what the steps took and would have taken, and the
// sentence on the straggler. Empty where the run has no metrics; columns: docs/metrics.md.
std::string metrics_table(const RunResult& run, const Style& style);

// Losses that others printed (golden/data), to be shown beside a run's own. Nothing is decided by
// them: whoever printed them may have had another order, other weights or another mean.
struct PublishedLosses {
  struct Printed {
    int64_t epoch = 1;
    int64_t step = 1;  // of the epoch
    double loss = 0;
  };
  std::string of;  // "one device, not seeded"
  std::vector<Printed> losses;
};
Expected<std::vector<PublishedLosses>> load_published_losses(const std::string& path);

// A table of the run's losses, with the published ones beside them where the run has their path.
std::string losses_text(const RunResult& run);

}  // namespace lockstep
