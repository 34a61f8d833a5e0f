#pragma once

#include "sim/plan/plan.h"

namespace lockstep {

// How often states are compared (scenario key `compare_every`). What is skipped is the copy, the
// hashes and the comparison of the whole state; golden runs compute every step all the same.

// Parameters from which on a scenario that does not say compares every tenth step.
constexpr int64_t kLargeModelElements = 10'000'000;

// What the scenario says; 0: by the model's size, and 1 where something needs every step: ranks
// that do not agree after all of them, lane rounding, a resume, mutants. `plan`: lanes are chosen.
int64_t comparison_interval(const RunPlan& plan);

// Of a scenario that says: why that cannot be, or empty.
std::string why_every_step(const Scenario& scenario);

// Is the state after this step compared? start_step: the one that the pass goes on from; >= it.
bool is_compared(const RunPlan& plan, int64_t start_step, int64_t step);

// Comparisons before that of `step`, itself compared. The one at start_step is number 0.
int64_t comparison_number(const RunPlan& plan, int64_t start_step, int64_t step);

}  // namespace lockstep
