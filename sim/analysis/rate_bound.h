#pragma once

#include <cstdint>

namespace lockstep {

// The rate of which `runs` runs with at most `events` events would be seen once in twenty times:
// Clopper and Pearson's upper bound (Biometrika 26, 1934) at 95 %; 1 - 0.05^(1/runs) where there
// was no event. 1 without runs.
double rate_bound_95(int64_t events, int64_t runs);

}  // namespace lockstep
