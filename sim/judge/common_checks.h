#pragma once

#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// What the checks that are common today would have found in this run, of a scenario that asks for
// common_checks; they have no weight in the verdict. Each is "found", "missed", or "not_run" where
// the run did not come so far. Steps and losses of a run on one device with the whole batch in the
// scenario's dtype are the reference.
//   loss_5_percent           a loss of a step, mean over all ranks, is off by more than 5 %
//   weights_hash             after a step, ranks do not have the same weights
//   assert_close             rank 0's weights after the last step are not close to one device's, by
//                            the default tolerances of torch.testing.assert_close
//   gradient_norm_8_percent  the norm of rank 0's gradients in a step is off by more than 8 %
// The figures are those of published comparisons (NUMERICS: TTrace's and DeepSpeed's practice).
void decide_common_checks(const RunPlan& plan, const std::vector<RankView>& ranks,
                          RunResult* result);

}  // namespace lockstep
