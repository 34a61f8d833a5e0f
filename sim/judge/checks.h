#pragma once

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// runs[].checks: pass, fail, or not_run where no rank recorded it, with a line for each failure.
// collective_log is compared here, over the steps that all ranks have ended.
void decide_checks(const std::vector<RankView>& ranks, RunResult* result);

}  // namespace lockstep
