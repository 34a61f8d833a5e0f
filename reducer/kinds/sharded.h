#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <vector>

#include "reducer/base/reducer_base.h"
#include "reducer/bucket.h"
#include "reducer/communicator.h"
#include "reducer/kinds/bucketed.h"
#include "scenarios/base/named_tensor.h"

namespace lockstep {

// How what an owner has updated reaches the other ranks. Collective: all ranks call with the same
// pieces. `tensors`: without gaps in memory (memory_order.h), by registration index. Blocks; throws
// CommError.

struct ReducerOptions;

// The pieces of reducer `sharded`: of which parts of which buckets each rank's are. By bucket.
std::vector<std::vector<OptimizerShard>> bucket_shards_of(const ReducerOptions& options,
                                                          const NamedTensors& parameters,
                                                          int64_t world_size);

// The elements of `piece` in a tensor that lies in memory as its parameter does: a view,
// one-dimensional. A piece is a run of elements in memory.
at::Tensor elements_of(const OptimizerShard& piece, const at::Tensor& whole);

// A broadcast for each piece, in their order, all under way at once; or, together, one an owner.
void broadcast_shards(const std::vector<OptimizerShard>& pieces,
                      const std::vector<at::Tensor>& tensors, bool together,
                      Communicator& communicator, Deadline deadline);

// An all_gather of equal, padded parts for each bucket (see bucket_shards()).
void all_gather_shards(const std::vector<std::vector<OptimizerShard>>& buckets,
                       const std::vector<at::Tensor>& tensors, Communicator& communicator,
                       Deadline deadline);

// ZeRO's stage 2: every bucket, padded to equal parts, is reduce-scattered as soon as all its
// gradients are there, in index order. after_backward() leaves in grad() the average of this rank's
// elements, and 0 in those that other ranks own: who owns which, bucket_shards_of() says. Buckets
// are closed by the caps, in registration order, and never rebuilt. Every parameter needs a
// gradient.
class ShardedReducer : public ReducerBase {
 public:
  ShardedReducer(const ReducerOptions& options, const NamedTensors& parameters,
                 const NamedTensors& buffers, Communicator& communicator, Probe& probe);

  void before_backward(const std::vector<at::Tensor>& outputs) override;
  void after_backward() override;
  BucketLayout layout() const override { return registered_layout_; }

 private:
  void hook(size_t place);
  void launch_ready_buckets();
  void keep_own_elements(size_t bucket);

  const BucketLayout layout_;  // of places
  const std::vector<std::vector<OptimizerShard>> pieces_;
  BucketStorage storage_;
  BucketLayout registered_layout_;
  const NamedTensors parameters_;

  // Of the step under way. Hooks come from autograd threads: one at a time through the mutex.
  std::mutex mutex_;
  bool expecting_ = false;
  std::vector<bool> ready_;
  std::vector<size_t> pending_;    // gradients that a bucket still waits for
  std::vector<at::Tensor> parts_;  // this rank's, by bucket
  std::vector<CommWorkPtr> works_;
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace lockstep
