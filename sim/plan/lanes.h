#pragma once

#include <string>

#include "scenarios/base/lane.h"
#include "scenarios/scenario.h"
#include "sim/plan/plan.h"

namespace lockstep {

bool asks_for(const Scenario& scenario, Lane lane);

// Which of the lanes that the scenario names are judged, why the others are not applicable, and
// what runs beside the ranks for them: golden runs, the double run, what watches states. `plan` has
// the scenario and its resume.
void choose_lanes(RunPlan* plan);

}  // namespace lockstep
