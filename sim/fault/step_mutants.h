#pragma once

#include <functional>

#include "scenarios/workloads/workload.h"
#include "sim/record/recorder.h"

namespace lockstep {

// Defects of the program around one rank's reducer: what it is built with, and which calls of a
// step are made, left out or made twice. Each leaves a receipt when it acts; without such mutants
// nothing happens. Kinds are described in scenarios/schema.json. One thread.
class StepMutants {
 public:
  StepMutants(const Scenario& scenario, int64_t rank, Recorder& recorder)
      : scenario_(scenario), rank_(rank), recorder_(recorder) {}

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
  const MutantSpec* acts(const char* kind);
  NamedTensors stale(const char* kind, const NamedTensors& known);
  void each(const char* kind, const NamedTensors& tensors,
            const std::function<void(at::Tensor tensor)>& change);

  const Scenario& scenario_;
  const int64_t rank_;
  Recorder& recorder_;
  bool again_ = false;     // this step's loss goes backward once more
  NamedTensors reducers_;  // those that the reducer has instead of the trained ones
};

}  // namespace lockstep
