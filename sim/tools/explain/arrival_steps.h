#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/tools/explain/dump.h"

namespace lockstep {

inline constexpr size_t kLeastSteps = 6;

// Of two in the middle the smaller one: of two ranks, that which came first.
double middle(std::vector<double> values);

// Who came when to the collectives of a group, of those that all its dumps tell of.
struct GroupArrivals {
  std::string name, description;
  std::vector<int64_t> ranks;
  std::vector<const FlightEntry*> calls;     // the first rank's
  std::vector<size_t> kinds;                 // of calls: those that are alike have one number
  std::vector<std::vector<double>> came_ms;  // by collective, by index of the rank
  std::vector<std::vector<const FlightEntry*>> entries;  // likewise
  bool whole = true;                                     // no kind of calls is left out
  bool by_runs = false;  // of the GPUs, which came when the rank's was done with what went before
};

// Collectives [begin, begin + steps * calls) are `steps` steps.
struct Steps {
  size_t begin = 0, calls = 0, steps = 0;
};

// The shortest stretch after which calls, and the gaps between them, repeat; none: of 0 steps.
Steps steps_of(const GroupArrivals& group);

}  // namespace lockstep
