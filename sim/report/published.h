#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/judge/judge.h"

namespace lockstep {

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
