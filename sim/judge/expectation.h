#pragma once

#include <string>

#include "sim/judge/judge.h"

namespace lockstep {

// "pass", "fail, cause wrong_divisor, step 1", "failed, rank 2, hang, within 30500 ms".
std::string to_words(const Expectation& expect);

// Fills expected, unmet and met from what was observed (CONTRACT.md "Verdicts"). undecided: the
// run was interrupted, so that nothing can be said whatever was expected.
void judge_expectation(const Expectation& expect, bool undecided, RunResult* result);

}  // namespace lockstep
