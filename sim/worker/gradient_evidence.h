#pragma once

#include "sim/worker/diagnose.h"

namespace lockstep {

// Of the gradients that differ: what of a list of known defects fits all of their wrong elements.
// One element fits any factor: where few are wrong, only what has no free factor is tried.
void describe_gradients(const MismatchContext& context, MismatchEvidence* evidence);

}  // namespace lockstep
