#pragma once

#include "sim/tools/explain/job_attribution.h"

namespace lockstep {

// PyTorch counts groups: those that ranks make in one call, each its own (split_group(), of which a
// device mesh makes the groups of an axis), have one name. Where lists of ranks tell them apart,
// each gets a name of its own, "1 [4, 5]", in dumps and in what logs say of a rank.
void tell_namesakes_apart(JobEvidence* job);

}  // namespace lockstep
