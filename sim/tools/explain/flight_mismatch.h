#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/flight_groups.h"

namespace lockstep {

// Completes at one member only when all have entered, whatever the transport.
bool is_symmetric(const std::string& operation);

// Is a collective still waited for by who called it? A communicator's end in their order; Gloo does
// not record ends.
bool is_waiting(const GroupRecord& group, const FlightArrival& arrival);

// Those that called the same.
struct MismatchSide {
  std::string what;  // for people
  std::string operation;
  int64_t elements = 0;  // of all its inputs
  RankSet ranks;
};

struct FlightMismatch {
  int64_t sequence = -1;
  std::map<std::string, MismatchSide> sides;  // by what they called
  Difference difference = Difference::none;
  bool open = false;  // somebody waits in one
};

// The first number of the group at which members called different things. Shapes of one count of
// elements are the same on every transport.
std::optional<FlightMismatch> first_mismatch(const GroupRecord& group);

// What the few did otherwise than the many at that number and after it: the same calls in another
// order, their loop's next step where the others had left it, or another call.
FlightClass class_of_mismatch(const GroupRecord& group, int64_t sequence, const RankSet& few,
                              const RankSet& many);

}  // namespace lockstep
