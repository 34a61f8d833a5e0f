#pragma once

#include <memory>
#include <mutex>

#include "reducer/base/gradient_hooks.h"
#include "reducer/base/reducer_base.h"
#include "reducer/kinds/bucket_storage.h"
#include "reducer/optimizer_shards.h"

namespace lockstep {

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
