#pragma once

#include <optional>
#include <vector>

#include "sim/tools/program/drill_recording.h"

namespace lockstep {

// A loss that each rank divides by a number of its own (of unmasked elements, tokens, boxes) makes
// a mean of means: the gradient of one device is that of the ranks, before any reduction, in a
// weighted mean whose weights are not alike; one that is a function of each rank's mean makes
// weights that add up to anything. They are found from what was recorded of all
// parameters, which is far more than there are weights, and fit it within the bound of double;
// nothing where no weights do, all are alike, or too little was recorded to tell.
std::optional<std::vector<double>> rank_weights(const std::vector<DrillRank>& ranks,
                                                const DrillRank& one);

// Each rank limited the norm of its own gradients before they were reduced: in the mean that the
// optimizer is given each rank's gradient has a factor, and factor times norm is one limit, but for
// those whose norm is within it. Nothing where the factors say anything else, or are all alike.
struct LimitedNorms {
  std::vector<double> factors;  // by rank
  double limit = 0;
};
std::optional<LimitedNorms> limited_norms(const std::vector<DrillRank>& ranks,
                                          const ProgramStep& step);

// The same of each parameter by itself: the limit by which every one of them, of two or more, is
// what the ranks' limited gradients add up to, or their mean. Nothing where none does.
std::optional<double> limit_of_each_parameter(const std::vector<DrillRank>& ranks,
                                              const ProgramStep& step);

}  // namespace lockstep
