#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// A collective as it is seen from outside: launched on the last rank; ended on all of them.
struct OnWire {
  int64_t begin_ns = 0, end_ns = 0, bytes = 0;
};

// How long each of them had the wire, which takes one after the other in the order of their ends:
// from its launch, or the end of the one before, to its own end.
std::vector<double> wire_times_ns(const std::vector<OnWire>& collectives);

// The same where several may be under way at once, and end together: of those with equally many
// bytes between which the wire was never free, each has their mean.
std::vector<double> shared_wire_times_ns(const std::vector<OnWire>& collectives);

}  // namespace lockstep
