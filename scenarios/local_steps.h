#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace lockstep {

// Training in which ranks part for a while: comm hook post_local_sgd lets each keep its gradients,
// model_averaging brings their parameters together. Steps count from 1.

// Are gradients averaged over ranks in this step?
bool averages_gradients(const Scenario& scenario, int64_t step);
// Are parameters averaged over ranks after this step's update?
bool averages_parameters(const Scenario& scenario, int64_t step);
// May ranks have different states in some step, or rounding of averaged parameters?
bool has_own_states(const Scenario& scenario);

}  // namespace lockstep
