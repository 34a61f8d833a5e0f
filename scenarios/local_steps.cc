#include "scenarios/local_steps.h"

namespace lockstep {

bool averages_gradients(const Scenario& scenario, int64_t step) {
  const Part& hook = scenario.comm_hook;
  return hook.kind != "post_local_sgd" || step < hook.options.integer("start_step");
}

bool averages_parameters(const Scenario& scenario, int64_t step) {
  const Part& averaging = scenario.model_averaging;
  if (averaging.kind == "none") return false;
  const int64_t since = step - 1 - averaging.options.integer("warmup_steps");
  return since >= 0 && since % averaging.options.integer("period") == 0;
}

bool has_own_states(const Scenario& scenario) {
  return scenario.model_averaging.kind != "none" || !averages_gradients(scenario, scenario.steps);
}

}  // namespace lockstep
