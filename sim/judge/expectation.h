#pragma once

#include <string>
#include <vector>

#include "sim/judge/judge.h"

namespace lockstep {

// "pass", "fail, cause wrong_divisor, step 1", "failed, rank 2, hang, within 30500 ms".
std::string to_words(const Expectation& expect);

// The first that holds for that version of LibTorch ("2.6.0"); none where the version decides and
// is not known (empty): no rank came so far as to tell it.
const Expectation* expectation_for(const std::vector<Expectation>& expectations,
                                   const std::string& libtorch);

// What differs, in words: "cause: expected wrong_divisor, got order_only". Empty: nothing.
std::vector<std::string> unmet_of(const Expectation& expect, const RunResult& result);

// Fills expected, unmet, met and undecided from what was observed (docs/verdicts.md).
// interrupted: the run was, so that nothing can be said whatever was expected.
void judge_expectation(const Expectation& expect, bool interrupted, RunResult* result);

// Was the defect of this run found as `expect` says, by the right lanes and checks, with the right
// cause, at the right place? `result` has its verdict and failure.
Kill kill_of(const Expectation& expect, const RunResult& result);

}  // namespace lockstep
