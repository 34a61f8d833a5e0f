#pragma once

#include "sim/cli/compare.h"
#include "sim/cli/verbs.h"

namespace lockstep {

// The verbs analyze and compare, of what scripts/lockstep_record.py recorded of runs in Python.

int analyze_recording(const AnalyzeOptions& options);
int compare_recordings(const CompareOptions& options);

}  // namespace lockstep
