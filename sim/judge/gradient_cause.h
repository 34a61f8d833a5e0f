#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge/divergence.h"

namespace lockstep {

// The rules of name_cause() that read gradients, and what they share with the others.
using Found = std::optional<Cause>;

std::optional<LaneVerdict> verdict_of(const CauseFacts& facts, Lane lane);

// Where a gradient is the first to differ: from the most specific cause to the least.
Found cause_of_gradients(const CauseFacts& facts);
// The run is not finite, whatever the golden run is.
Found not_finite(const CauseFacts& facts);
// A handful of bits, or one element, of one copy.
Found flipped_bits(const CauseFacts& facts);
// Replay, which shares kernels and loss with the run, agrees; the full batch does not.
Found other_function(const CauseFacts& facts);
Cause unknown_cause(const CauseFacts& facts);

}  // namespace lockstep
