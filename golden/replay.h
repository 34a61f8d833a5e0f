#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "golden/power_sgd.h"
#include "golden/replay_buckets.h"
#include "golden/replay_rule.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// Runs body(rank, group) for all ranks at once, a thread each, and returns when all are done. They
// meet in their group's all_gather. Rethrows the first exception that is no consequence of
// another's; a rank that ends while others still wait for it fails them.
void run_in_lock_step(int64_t ranks, const std::function<void(int64_t, BatchGroup&)>& body);

// Data-parallel gradients without any rank: forward and backward over one shard after the other
// from the same weights, then the average in the order of a ReplayRule. One thread; a model that
// normalizes over all ranks (BatchGroup) takes all shards at once, a thread and a replica each.
class Replay {
 public:
  // `training` and `scenario` must outlive this object. Of the scenario only loss, zero_grad,
  // world_size, accumulate_steps and averaging are used; with joins its split, and model and
  // optimizer for replicas; comm hook powersgd.
  Replay(const ReplayRule& rule, const Scenario& scenario, Training& training);

  // Leaves the averaged (of a gathered rule: summed) gradients of step `step` (from 1) in the
  // parameters' grad(), and in the buffers what rank 0's forward made of them. A parameter that no
  // rank used keeps what it had. shards: one per rank; with joins, some may be empty. visit(rank),
  // if given, is called while grad() holds that rank's local gradients.
  void average(int64_t step, const std::vector<Batch>& shards,
               const std::function<void(int64_t rank)>& visit = nullptr);

 private:
  void build_replicas();
  void start_step(int64_t step);
  void lay_out_when_due(size_t averaged);
  // A stretch of a step after which gradients are averaged: all of it, or one of its micro-batches.
  struct Stretch {
    int64_t step = 0;
    size_t index = 0;  // from 0
    int64_t batch_samples = 0;
    std::vector<std::vector<Batch>> micro_batches;  // of each rank; none where it has no batch
  };
  std::vector<Stretch> stretches_of(int64_t step, const std::vector<Batch>& shards) const;
  void average_stretch(const Stretch& stretch, const std::function<void(int64_t rank)>& visit);
  void pass(Training& own, const Stretch& stretch, int64_t rank);
  void backward(Training& own, const Stretch& stretch, int64_t rank);
  void load_buffers(Training& own, int64_t rank);
  void keep_buffers(const Training& own, int64_t rank);
  int64_t buffer_source(size_t buffer, int64_t rank) const;
  void note_used(int64_t rank);
  void average_buffers(std::vector<std::vector<at::Tensor>>* of_ranks) const;
  void load_kept_buffers();
  at::Tensor left_by_none(at::Tensor found) const;
  void put();
  void sum_gathered(int64_t step, const std::vector<Batch>& shards);
  void add_gathered(int64_t step, const Batch& batch, double share, std::vector<at::Tensor>* sums);
  at::Tensor gradient_of_outputs(int64_t step, const std::vector<Batch>& chunks, double share);

  const ReplayRule rule_;
  const Scenario& scenario_;
  const int64_t world_size_;
  Training& training_;
  std::vector<Training> replicas_;  // of each rank, with the same weights; empty if one will do
  ReplayBuckets buckets_;
  std::optional<PowerSgd> power_sgd_;
  int64_t first_active_ = 0;   // the first rank that has a batch in this step
  int64_t buffer_source_ = 0;  // the rank whose buffers all ranks get in this step
  int64_t age_ = 0;            // of the step, from 1, since the start or the last restart
  bool rebuilt_ = false;
  std::vector<size_t> ready_order_;                 // of rank 0 in its first backward
  std::vector<std::vector<size_t>> ready_of_rank_;  // parameters whose gradients its pass added to
  std::vector<bool> used_;                          // parameters that got a gradient on any rank
  std::vector<at::Tensor> start_gradients_;         // of parameters, as the step found them
  std::vector<std::vector<at::Tensor>> rank_buffers_;   // of each rank; empty without buffers
  std::vector<std::vector<at::Tensor>> start_buffers_;  // the same, as the step found them
};

}  // namespace lockstep
