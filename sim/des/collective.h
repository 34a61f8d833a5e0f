#pragma once

#include <cstdint>
#include <vector>

#include "sim/des/job.h"

namespace lockstep {

// When a collective ends on each rank, from when each of them starts it: three ways to know, which
// agree where all apply (tests/sim/des/engines_test.cc). Starts and ends by rank, in nanoseconds.

// By formula: all at once, all_reduce_ns() after the last start. Also of fewer starts than ranks,
// where some stand for many.
std::vector<int64_t> ends_by_formula(const Job& job, const std::vector<int64_t>& starts,
                                     int64_t bytes);

// Round by round. In each round of a ring rank r sends a part to r + 1 over its own link,
//   x_r(k+1) = max(x_r(k) + c_r, x_{r-1}(k) + c_{r-1}),
// in each of halving-doubling and recursive doubling two exchange, x(k+1) = max of both + c_k.
// Ends all together at max start + 2(p-1)c where links are equal, at most that with the largest c
// where they are not. Algorithms without rounds here, and tables: by formula.
std::vector<int64_t> ends_by_rounds(const Job& job, const std::vector<int64_t>& starts,
                                    int64_t bytes);

// From a rank to the next one of a ring.
LinkCost link_of(const Job& job, size_t rank);
// How long the wire is busy with a collective, that of the slowest link of its own.
int64_t wire_ns(const Job& job, int64_t bytes);

// Does ends_by_rounds() go through rounds?
bool has_rounds(const Job& job);

}  // namespace lockstep
