#pragma once

#include <cstdint>

#include "reducer/reducer.h"
#include "scenarios/scenario.h"

namespace lockstep {

// What the scenario says of rank `rank`'s reducer, mutants included, faults not.
ReducerOptions reducer_options_of(const Scenario& scenario, int64_t rank);

}  // namespace lockstep
