#pragma once

#include "scenarios/faults.h"
#include "tests/scenarios/part_of.h"

namespace lockstep {

// A fault of a scenario as the parser would make it.
inline Fault fault_of(FaultKind kind, const PartValues& values) {
  return {kind, part_of("", values).options};
}

}  // namespace lockstep
