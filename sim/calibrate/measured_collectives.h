#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/des/cost.h"

namespace lockstep {

// Measured collectives of one operation and world size, as a table of a machine: what nccl-tests'
// all_reduce_perf prints, or the result of `lockstep collective --json` of one of
// kMeasuredOperations. Told apart by their content.
//
// Of nccl-tests the time in place counts, as DDP reduces, and the world size is the number of its
// "Rank" lines. A size that took less time than a smaller one shares a mean with it: more bytes are
// never faster, here too (isotonic regression, weights 1). Sizes of 0 bytes are left out.
//
// Bad input, with file and line: neither of the two, another operation, wrong results, no rank
// lines, several communicators, no size.
Expected<CostModel::Table> read_measured_collectives(const std::string& path);
Expected<CostModel::Table> measured_collectives_from(std::string_view text,
                                                     const std::string& file);

// Ascending values that are closest to these by least squares (pool adjacent violators).
std::vector<double> isotonic(const std::vector<double>& values);

}  // namespace lockstep
