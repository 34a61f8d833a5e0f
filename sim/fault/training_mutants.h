#pragma once

#include <functional>
#include <vector>

#include "reducer/reducer.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/tensor_hooks.h"
#include "sim/record/recorder.h"

namespace lockstep {

// What those of one rank need to know.
class RankMutants {
 public:
  RankMutants(const Scenario& scenario, int64_t rank, Recorder& recorder)
      : scenario_(scenario), rank_(rank), recorder_(recorder) {}

 protected:
  // The first mutant of this kind that acts in the step under way, with a receipt; or null.
  const MutantSpec* acts(const char* kind);

  const Scenario& scenario_;
  const int64_t rank_;
  Recorder& recorder_;
};

// Defects of one rank's own gradients, between autograd and the reducer: OPERATION_gradient with
// the operations of sim/fault/bucket_mutants.h, on one parameter or on all. Each leaves a receipt
// when it acts; without such mutants nothing happens. Made anew with the model; one thread.
class GradientMutants : public RankMutants {
 public:
  using RankMutants::RankMutants;

  // Whenever the rank has a new model, after its reducer was made.
  void watch(const Training& training);

 private:
  bool wants(const std::string& parameter) const;
  // What goes on in place of `gradient`.
  at::Tensor seen(const std::string& parameter, const at::Tensor& gradient, at::Tensor* last);

  TensorHooks hooks_;
};

// Defects of the program around one rank's reducer: what it is built with, and which calls of a
// step are made, left out or made twice. Each leaves a receipt when it acts; without such mutants
// nothing happens. Kinds are described in scenarios/schema.json. One thread.
class StepMutants : public RankMutants {
 public:
  using RankMutants::RankMutants;

  // other_buffers, tie_parameters. Before the reducer is built.
  void before_construction(const Training& training);
  // replace_parameter, reassign_buffer: what the reducer is built with is then not what is trained.
  NamedTensors known_parameters(const NamedTensors& parameters);
  NamedTensors known_buffers(const NamedTensors& buffers);
  // Once the reducer is built: what is trained gets the values that the reducer's have;
  // move_parameter.
  void after_construction(const Training& training);

  // bypass_reducer: are the reducer's calls of this step left out?
  bool bypasses() { return acts("bypass_reducer") != nullptr; }
  // second_forward: is there another forward before the backward?
  bool forwards_twice() { return acts("second_forward") != nullptr; }
  // skip_finalize: is the end of this step's backward not awaited?
  bool skips_finalize() { return acts("skip_finalize") != nullptr; }
  // undivided_micro_batches: what a micro-batch's share of the loss is multiplied by.
  double share_factor();
  // loss.backward(), but for grad_without_hooks and second_backward.
  void backward(const at::Tensor& loss, const Training& training);
  // lose_accumulated: of a micro-batch that was not synchronized.
  void after_micro_batch(const Training& training);
  // second_backward, clone_gradient, zero_for_none. When gradients are averaged.
  void after_reduction(const at::Tensor& loss, const Training& training);

 private:
  NamedTensors stale(const char* kind, const NamedTensors& known);
  void each(const char* kind, const NamedTensors& tensors,
            const std::function<void(at::Tensor tensor)>& change);

  bool again_ = false;     // this step's loss goes backward once more
  NamedTensors reducers_;  // those that the reducer has instead of the trained ones
};

// own_batch_norm: layers of this rank that normalize over all ranks' samples see those of its own
// alone; the other ranks see those of all. One thread.
class StatisticsMutant : public RankMutants, public BatchGroup {
 public:
  // `ranks` must outlive this object.
  StatisticsMutant(const Scenario& scenario, int64_t rank, Recorder& recorder, BatchGroup& ranks)
      : RankMutants(scenario, rank, recorder), ranks_(ranks) {}
  at::Tensor all_gather(const at::Tensor& row) override;

 private:
  BatchGroup& ranks_;
};

// Defects in what a rank's reducer is told. ignore_parameter: this rank leaves one out. The others
// put a comm hook in where the scenario has none, so that lane replay still expects the reducer's
// own arithmetic: hook_path (divides, where the reducer multiplies by the reciprocal), cast_early
// (bfloat16), skip_hook (nothing is summed), sum_undivided, divide_twice. Kinds are described in
// scenarios/schema.json.
void apply_reducer_mutants(const std::vector<MutantSpec>& mutants, int64_t rank,
                           ReducerOptions* options);

// Defects of one rank's training, beside its reducer: wrong_lr, lr_times_world_size,
// clip_before_sum, local_skip, stale_momentum, lose_momentum, other_weights, forget_sync,
// same_masks. Each leaves a receipt when it acts; without such mutants nothing happens. One thread.
class TrainingMutants : public RankMutants {
 public:
  using RankMutants::RankMutants;

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
  void use_other_weights(Training* training) const;

  bool loss_finite_ = true;  // in all backward passes of this step
  TensorHooks hooks_;
};

}  // namespace lockstep
