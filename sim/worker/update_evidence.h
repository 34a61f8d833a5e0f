#pragma once

#include "sim/record/evidence.h"
#include "sim/worker/diagnose.h"

namespace lockstep {

// The part of diagnose() between averaged gradients and new weights: clipping, skipped steps,
// learning rate. Fills in clipping, skipped_run, skipped_golden, update_ratio.
void describe_update(const MismatchContext& context, MismatchEvidence* evidence);

}  // namespace lockstep
