#pragma once

#include <cstdint>
#include <string>

#include "sim/tools/explain/attribution.h"

namespace lockstep {

// What a rank did not enter, or not complete, while others did.
struct FlightMissed {
  std::string group;
  int64_t sequence;
  std::string operation;
  RankSet others;
  bool transfer = false;  // a send or receive: the operation is the others'
  int64_t since_ns = 0;   // when the first of the others called it
};

}  // namespace lockstep
