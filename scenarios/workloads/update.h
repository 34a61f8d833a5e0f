#pragma once

#include <cstdint>
#include <memory>

#include "scenarios/base/named_tensor.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// Dynamic loss scaling of one rank or golden run: the loss is multiplied by scale() before the
// backward, averaged gradients are divided by it. All scales are powers of two, so that neither
// rounds. Deterministic: ranks whose averaged gradients agree keep equal scales without a word.
class LossScale {
 public:
  // part: of kind "dynamic".
  explicit LossScale(const Part& part);

  double scale() const;
  // Divides the gradients; false if any is not finite: the step must be skipped.
  bool unscale(const NamedTensors& parameters) const;
  // After the step: a skipped one lowers the scale, growth_interval good ones in a row raise it.
  void end_step(bool skipped);

  int64_t scale_log2 = 0;
  int64_t good_steps = 0;  // since the scale changed or a step was skipped
  int64_t skipped_steps = 0;

 private:
  int64_t growth_log2_;
  int64_t backoff_log2_;
  int64_t growth_interval_;
};

// What the loss of rank `rank` is multiplied by in this step: 1 without loss scaling; infinity
// where the scenario says that the scaled loss overflows there (loss_scaling.overflow_step,
// overflow_rank). rank -1: the whole batch on one device, to which every rank belongs.
double loss_factor(const Scenario& scenario, const Training& training, int64_t step, int64_t rank);

// `inner` with the state of `scale` before its own, in entries of the first parameter
// ("fc1.weight.loss_scale_log2", "good_steps", "skipped_steps"; int64 [1]): what ranks compare and
// what a checkpoint keeps.
std::unique_ptr<Optimizer> with_loss_scale(std::unique_ptr<Optimizer> inner,
                                           std::shared_ptr<LossScale> scale,
                                           const NamedTensors& parameters);

// Limits the gradients in grad(), in their own dtype, by LibTorch's own functions: kind "norm" by
// the norm of all of them together, "value" each element by itself; "none" does nothing.
void clip_gradients(const Part& clipping, const NamedTensors& parameters);

// Learning rate of step `step` (from 1), where `lr` is that of step 1 (of a warm-up: that of its
// end). Computed from the step alone, so that a resumed run goes on with the same numbers.
double lr_at(const Part& schedule, double lr, int64_t step);

// The two halves of update() (workload.h), for a rank that decides otherwise (sim/fault).

// Takes the loss scale out of the averaged gradients; false if the step must be skipped. True
// without loss scaling.
bool unscale(Training* training);

// usable: learning rate of this step, clipping, optimizer, requantizing. Otherwise the step is
// skipped, and its gradients become 0: nothing after it may use them. Then the loss scale is set
// for the next step.
void finish_step(const Scenario& scenario, int64_t step, bool usable, Training* training);

}  // namespace lockstep
