#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/judge/gradient_cause.h"

namespace lockstep {

// The weights by which `result` is the sum of `parts`, by least squares; none where the parts are
// not independent, or where more than `rest` of the result's size is left over.
std::optional<std::vector<double>> weights_of(const std::vector<double>& result,
                                              const std::vector<std::vector<double>>& parts,
                                              double rest);

// The rules of name_cause() that read by which factors ranks' gradients came into a result.

// What a factor means that should be 1: `what` is how the sentence begins ("gradients are"). A
// wrong divisor is one that counts something of the run: ranks, micro-batches, samples; any other
// factor is a wrong scale.
Cause cause_of_factor(const CauseFacts& facts, double factor, const std::string& what);

// The average lacks one rank's own gradients, or has more or less of them than it should.
Found one_ranks_share(const CauseFacts& facts);
// All wrong elements are one number times the golden run's.
Found one_ratio(const CauseFacts& facts);
// From all ranks' sketches: the average was put together with other weights than one each.
Found other_weights(const CauseFacts& facts);
// ... with the right ones: what ranks have averaged are not the gradients of their shards' losses.
bool averaged_rightly(const CauseFacts& facts);

}  // namespace lockstep
