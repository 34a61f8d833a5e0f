#pragma once

#include "scenarios/workloads/workload.h"
#include "sim/fault/tensor_hooks.h"
#include "sim/record/recorder.h"

namespace lockstep {

// Defects of one rank's own gradients, between autograd and the reducer: OPERATION_gradient with
// the operations of sim/fault/damage.h, on one parameter or on all. Each leaves a receipt when it
// acts; without such mutants nothing happens. Made anew with the model; one thread.
class GradientMutants {
 public:
  GradientMutants(const Scenario& scenario, int64_t rank, Recorder& recorder);

  // Whenever the rank has a new model, after its reducer was made.
  void watch(const Training& training);

 private:
  bool wants(const std::string& parameter) const;
  // What goes on in place of `gradient`.
  at::Tensor seen(const std::string& parameter, const at::Tensor& gradient, at::Tensor* last);

  const Scenario& scenario_;
  const int64_t rank_;
  Recorder& recorder_;
  TensorHooks hooks_;
};

}  // namespace lockstep
