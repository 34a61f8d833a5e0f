#pragma once

#include <functional>

#include "reducer/reducer.h"
#include "sim/worker/piecewise_optimizer.h"

namespace lockstep {

// Who updates what in one training, where no rank updates all of it.
struct Sharing {
  PiecewiseOptimizer* optimizer = nullptr;  // the training's; null: every rank updates all
  std::function<void()> gather_gradients;   // empty: all ranks have all averaged gradients

  // Gives every rank the whole optimizer state and all averaged gradients, for checkpoints and for
  // those who compare. Collective; throws CommError.
  void consolidate();
};

// Replaces the training's optimizer by one that is shared out as the scenario says, if it does.
// `training` and `group` must outlive the result.
Sharing partition_optimizer(const Scenario& scenario, const ReducerOptions& options,
                            Training* training, Communicator& group);

}  // namespace lockstep
