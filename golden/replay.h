#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "golden/replay_buckets.h"
#include "golden/replay_rule.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// Data-parallel gradients without any rank: forward and backward over one shard after the other
// from the same weights, then the average in the order of a ReplayRule. One thread.
class Replay {
 public:
  // `training` and `scenario` must outlive this object. Of the scenario only
  // loss, zero_grad, world_size, accumulate_steps and averaging are used; with joins, its split.
  Replay(const ReplayRule& rule, const Scenario& scenario, Training& training);

  // Leaves the averaged (of a gathered rule: summed) gradients of step `step` (from 1) in the
  // parameters' grad(), and in the buffers what rank 0's forward made of them. A parameter that no
  // rank used keeps what it had. shards: one per rank; with joins, some may be empty. visit(rank),
  // if given, is called while
  // grad() holds that rank's local gradients.
  void average(int64_t step, const std::vector<Batch>& shards,
               const std::function<void(int64_t rank)>& visit = nullptr);

 private:
  void start_step(int64_t step);
  void backward(int64_t step, int64_t rank, const Batch& shard, int64_t batch_samples);
  void clear();
  void load_buffers(int64_t rank);
  void keep_buffers(int64_t rank);
  void load_kept_buffers();
  void put();
  void sum_gathered(int64_t step, const std::vector<Batch>& shards);
  void add_gathered(const Batch& batch, double share, std::vector<at::Tensor>* sums);
  at::Tensor gradient_of_outputs(const std::vector<Batch>& chunks, double share);

  const ReplayRule rule_;
  const Scenario& scenario_;
  const int64_t world_size_;
  Training& training_;
  ReplayBuckets buckets_;
  int64_t buffer_source_ = 0;  // the rank whose buffers all ranks get in this step
  int64_t age_ = 0;            // of the step, from 1, since the start or the last restart
  bool rebuilt_ = false;
  std::vector<size_t> ready_order_;                    // of rank 0 in its first backward
  std::vector<bool> used_;                             // parameters that got a gradient on any rank
  std::vector<at::Tensor> start_gradients_;            // of parameters, as the step found them
  std::vector<std::vector<at::Tensor>> rank_buffers_;  // of each rank; empty without buffers
  std::vector<std::vector<at::Tensor>> start_buffers_;  // the same, as the step found them
};

}  // namespace lockstep
