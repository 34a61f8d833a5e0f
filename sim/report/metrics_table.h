#pragma once

#include <string>

#include "sim/judge/judge.h"
#include "sim/report/style.h"

namespace lockstep {

// A row for each rank with its means per step, what the steps took and would have taken, and the
// sentence on the straggler. Empty where the run has no metrics; columns: docs/metrics.md.
std::string metrics_table(const RunResult& run, const Style& style);

}  // namespace lockstep
