#pragma once

#include "golden/stream.h"
#include "scenarios/base/clock.h"
#include "sim/plan/plan.h"
#include "sim/record/recorder.h"

namespace lockstep {

// Judges every state that rank 0 streams by the plan's statistics (golden/statistics.h) and records
// them, with their controls. Blocks until the last state, the stream's end, or a wait's deadline.
void watch_states(const RunPlan& plan, StateStream& stream, Deadline deadline, Recorder& recorder);

}  // namespace lockstep
