#pragma once

#include <memory>
#include <set>
#include <string>

#include "scenarios/layer_times.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/acts/rank_faults.h"
#include "sim/fault/tensor_hooks.h"
#include "sim/launch/limits.h"

namespace lockstep {

// The faults of one rank that act in the middle of forward and backward, by hooks on its
// parameters: slow and its like (where compute is real: by a quota of cpu time or by spinning),
// slow_layer, slow_device, launch_stall, nan; and unused_parameter. Without such faults there are
// no hooks. One thread, but for autograd's.
class LayerFaults {
 public:
  // `clock`: of emulated compute, whose times slow and slow_layer change instead; else null.
  LayerFaults(const Scenario& scenario, RankFaults& faults, ComputeClock* clock);

  // Whenever the rank has a new model, before its reducer is built.
  void watch(const Training& training);
  void begin_forward(const Training& training);
  void end_forward();
  void begin_backward(const Training& training);

 private:
  at::Tensor at_gradient(const std::string& parameter, const at::Tensor& gradient);
  void spin();
  void stall_launches();
  void burden_device(const Training& training);
  bool take_cpu_quota();
  void set_clock();

  const Scenario& scenario_;
  RankFaults& faults_;
  ComputeClock* const clock_;
  const bool slows_;
  bool spins_ = false;               // where no quota does it
  std::unique_ptr<CpuQuota> quota_;  // of the step under way
  double slowdown_ = 1;              // of the step under way
  int64_t slowed_until_ns_ = 0;      // compute before it has taken its longer time
  std::string poisoned_;             // parameter whose gradient becomes NaN in this backward
  std::set<std::string> passed_;     // layers that this backward has reached
  at::Tensor left_out_;              // of this forward's graph
  TensorHooks hooks_;
};

}  // namespace lockstep
