#pragma once

#include "sim/judge/judge.h"

namespace lockstep {

// Was the defect of this run found as `expect` says, by the right lanes and checks, with the right
// cause, at the right place? `result` has its verdict and failure.
Kill kill_of(const Expectation& expect, const RunResult& result);

}  // namespace lockstep
