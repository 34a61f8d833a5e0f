#pragma once

#include <vector>

#include "sim/tools/explain/dump.h"

namespace lockstep {

// Is it the first of all that the rank called and that is not done, of which it is known when it
// began?
bool waits_first_in(const FlightEntry& entry, const FlightDump& dump);

bool waits_in_point_to_point(const FlightDump& dump);

// Is the last call of a group a send or receive that is not done?
bool ends_in_point_to_point(const FlightDump& dump);

// Jobs time all calls or none. A dump in which nothing has completed, nor begun, tells of starts
// where all tell in which something has.
void share_starts(std::vector<FlightDump>* dumps);

// The newest; null: there is none.
const FlightEntry* last_call(const FlightDump& dump);

}  // namespace lockstep
