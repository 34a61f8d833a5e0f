#include "scenarios/workloads/update.h"

#include "scenarios/workloads/clipping.h"
#include "scenarios/workloads/loss_scaling.h"
#include "scenarios/workloads/lr_schedule.h"

namespace lockstep {

bool unscale(Training* training) {
  return !training->loss_scale || training->loss_scale->unscale(training->parameters);
}

void finish_step(const Scenario& scenario, int64_t step, bool usable, Training* training) {
  if (usable) {
    training->optimizer->set_lr(
        lr_at(scenario.lr_schedule, scenario.optimizer.options.number("lr"), step));
    clip_gradients(scenario.clipping, training->parameters);
    training->optimizer->step();
    requantize(training->parameters, scenario.requantize);
  } else {
    clear_gradients(training->parameters, "zero");
  }
  if (training->loss_scale) training->loss_scale->end_step(!usable);
}

void update(const Scenario& scenario, int64_t step, Training* training) {
  finish_step(scenario, step, unscale(training), training);
}

}  // namespace lockstep
