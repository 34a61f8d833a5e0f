#pragma once

#include "scenarios/workloads/workload.h"
#include "sim/fault/tensor_hooks.h"
#include "sim/record/recorder.h"

namespace lockstep {

// Defects of one rank's training, beside its reducer: wrong_lr, lr_times_world_size,
// clip_before_sum, local_skip, stale_momentum, lose_momentum, other_weights, forget_sync,
// same_masks. Each leaves a receipt when it acts; without such mutants nothing happens. One thread.
class TrainingMutants {
 public:
  TrainingMutants(const Scenario& scenario, int64_t rank, Recorder& recorder);

  // Once, before the first step.
  void at_start(Training* training);
  // When the rank has loaded a checkpoint in the middle of the run.
  void after_resume(Training* training);
  // When the rank has the samples of a step: receipts of what sim/fault/mutants.h did to them.
  void have_samples();
  // Do this rank's samples draw what rank 0's do?
  bool draws_as_rank_0() { return rank_ > 0 && acts("same_masks"); }
  // Whenever the rank has a new model: hooks that clip elements before a reducer sees them.
  void watch(const Training& training);
  // Is no micro-batch of this step synchronized?
  bool forgets_sync() { return acts("forget_sync"); }
  void loss_is(const at::Tensor& loss);
  // This rank's gradients are complete; of reducer manual they are not summed yet. Of reducer
  // data_parallel they are: wrong_divisor divides them, as if they were to be averaged.
  void after_backward(const Training& training);
  // Instead of update(), whichever way it is to be done.
  void update(int64_t step, Training* training);

 private:
  bool acts(const char* kind);
  void use_other_weights(Training* training) const;

  const Scenario& scenario_;
  const int64_t rank_;
  Recorder& recorder_;
  bool loss_finite_ = true;  // in all backward passes of this step
  TensorHooks hooks_;
};

}  // namespace lockstep
