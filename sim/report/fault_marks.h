#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/launch/executor.h"

namespace lockstep {

// A fault or mutant that acted, from its receipt: for pictures, never for verdicts.
struct FaultMark {
  size_t rank = 0;
  int64_t time_ns = 0;  // on the clock of the rank's other events
  std::string name;     // "fault 0: stop"
  int32_t subject = 0;  // of its receipt
};

// Of the primary run, by rank and then in the order of its records.
std::vector<FaultMark> fault_marks(const RunOutcome& outcome);

// "fault 0: stop", "mutant 1: flip_bit" of a receipt's subject; "receipt 7" of one that the
// scenario does not know.
std::string receipt_name(const Scenario& scenario, int32_t subject);

}  // namespace lockstep
