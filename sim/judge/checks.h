#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/split.h"
#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// The first step in which two ranks did not call the same collectives, and what they called.
struct OtherCollective {
  int64_t step = 0;
  std::string text;
};
std::optional<OtherCollective> first_other_collective(const std::vector<RankView>& ranks);

// runs[].checks: pass, fail, or not_run where no rank recorded it, with a line for each failure.
// collective_log is compared here, over the steps that all ranks have ended.
void decide_checks(const std::vector<RankView>& ranks, RunResult* result);

// Of a step in which every rank recorded its own: weighted by samples; a summed loss adds up
// instead. Nothing where one did not.
std::optional<LossRow> loss_row(const RunPlan& plan, const std::vector<RankView>& ranks,
                                int64_t step, Split* split);

// Fills in the losses that the scenario asks for, of steps of which every rank recorded its own,
// and decides check "losses": is what the scenario reports the loss of the whole batch?
void decide_losses(const RunPlan& plan, const std::vector<RankView>& ranks, RunResult* result);

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

// Check "timeline": of a run in which ranks failed, did every collective end, or give up, in the
// time that it was given? It fails where a rank that was alive and running was still in one,
// without an error of its own, after twice its time-out and half a second more: the program that
// asked for the time-out did not get it. "inconclusive" where this is so only as long as the time
// counts for which processes of the run had no core. "not_run" where no rank failed, or ranks are
// threads.
void decide_timeline(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                     RunResult* result);

}  // namespace lockstep
