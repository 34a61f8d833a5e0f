#pragma once

#include <vector>

#include "sim/judge/judge.h"
#include "sim/judge/rank_view.h"

namespace lockstep {

// Check "timeline": of a run in which ranks failed, did every collective end, or give up, in the
// time that it was given? It fails where a rank that was alive and running was still in one,
// without an error of its own, after twice its time-out and half a second more: the program that
// asked for the time-out did not get it. "inconclusive" where this is so only as long as the time
// counts for which processes of the run had no core. "not_run" where no rank failed, or ranks are
// threads.
void decide_timeline(const RunOutcome& outcome, const std::vector<RankView>& ranks,
                     RunResult* result);

}  // namespace lockstep
