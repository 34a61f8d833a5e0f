#pragma once

#include <optional>
#include <vector>

#include "sim/tools/program/drill_align.h"

namespace lockstep {

// What the calls of the ranks that belong together were given, where their outputs do not fit.
struct GivenCalls {
  std::vector<const DrillCall*> ranks;
  const DrillCall* one = nullptr;
};

// Where something without a gradient comes from that was made of a batch as a whole, and is neither
// alike on all ranks nor theirs together that of one device.
std::optional<DrillPlace> differing_whole(const GivenCalls& calls);

// Numbers of Python, of one place: of each rank, and of one device.
struct GivenNumbers {
  std::vector<double> ranks;
  double one = 0;
};

// The first that is not alike on all ranks.
std::optional<GivenNumbers> differing_numbers(const GivenCalls& calls);

// By what one number, which fits, was multiplied.
struct ScalarFactors {
  std::vector<double> ranks;
  double one = 1;
};

// `made`: the calls that made it. Nothing unless each is a product or a quotient.
std::optional<ScalarFactors> scalar_factors(const GivenCalls& calls, const GivenCalls& made);

}  // namespace lockstep
