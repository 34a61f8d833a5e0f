#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "reducer/base/reducer_base.h"
#include "reducer/bucket.h"
#include "reducer/communicator.h"
#include "reducer/reducer.h"

namespace lockstep {

// Contiguous memory of a layout's buckets with a view for each parameter's gradient. A parameter
// with a sparse gradient has neither.
class BucketStorage {
 public:
  BucketStorage() = default;
  // Allocated by the communicator that will sum them. Of parameters in `sparse` there is none.
  // Buckets are padded with zeros to a multiple of `multiple` elements.
  BucketStorage(const BucketLayout& layout, const std::vector<at::Tensor>& parameters,
                const std::vector<bool>& sparse, Communicator& communicator, int64_t multiple = 1);

  const at::Tensor& flat(size_t bucket) const { return flat_[bucket]; }
  const at::Tensor& view(size_t parameter) const { return views_[parameter]; }
  size_t bucket_of(size_t parameter) const { return bucket_of_[parameter]; }
  // For a comm hook: of each parameter of `bucket`, in its shape and contiguous.
  std::vector<at::Tensor> by_parameter(const BucketLayout& layout, size_t bucket) const;

 private:
  std::vector<at::Tensor> flat_;
  std::vector<at::Tensor> views_;  // by parameter
  std::vector<size_t> bucket_of_;
};

// Times of a reducer's steps, and their means, by the points of time that DDP's logger takes.
// Called in the order of the functions, last_gradient() and first_bucket() in any; one thread at a
// time.
class StepTimes {
 public:
  void forward_begins();
  void backward_begins();
  void first_bucket();   // its collective is started
  void last_gradient();  // so far
  void ends();           // the last collective has ended: the step counts

  void fill(ReducerData* data) const;

 private:
  int64_t forward_ = 0, backward_ = 0, bucket_ = 0, gradient_ = 0;  // of this step
  int64_t steps_ = 0;
  int64_t forward_ns_ = 0, backward_ns_ = 0, comm_ns_ = 0, overlap_ns_ = 0;  // of all
};

// What tells `bucketed`, `flat` and `per_parameter` apart. The layout holds places among the
// trained parameters.
struct BucketPolicy {
  BucketLayout layout;
  bool rebuild = false;           // after step 1, in the order in which gradients became ready
  bool divide = false;            // g / W instead of g * fl(1/W)
  bool bucket_view = false;       // gradients are views into the buckets
  bool search_unused = false;     // walk the graph for parameters that get no gradient
  bool write_back_early = false;  // each bucket's averages while later ones are under way
  bool count_uses = false;        // static graph: count them in the first step instead
};
BucketPolicy bucket_policy(const ReducerOptions& options, const TrainedParameters& parameters);

// DDP's way: hooks copy gradients into buckets, which are summed in index order, asynchronously
// during backward; after_backward() waits and writes back. A sparse gradient is itself its bucket:
// divided by W and replaced by the sum, whatever the policy says of others.
class BucketedReducer : public ReducerBase {
 public:
  BucketedReducer(const ReducerOptions& options, const NamedTensors& parameters,
                  const NamedTensors& buffers, Communicator& communicator, Probe& probe);

  void before_forward(bool synchronizes) override;
  void before_backward(const std::vector<at::Tensor>& outputs) override;
  void after_backward() override;
  BucketLayout layout() const override { return registered_layout_; }
  ReducerData data() override;

 private:
  void use_layout(BucketLayout layout);
  void renew_layout() override;
  void shadow_backward() override;
  void rebuild();
  void hook(size_t place);
  void mark_ready(size_t place);
  void copy_in(size_t place);
  void divide_sparse(size_t place);
  const at::Tensor& bucket_tensor(size_t bucket) const;
  void launch_ready_buckets();
  void start_hook(BucketStorage& storage, size_t bucket);
  void finish(BucketStorage& storage, size_t bucket);
  void reduce_used_map();
  void write_back_bucket(size_t bucket);
  void write_back(size_t place);
  bool is_unused_everywhere(size_t place);
  bool counts_uses_now() const { return policy_.count_uses && step_ == 1; }
  void mark_all_ready();

  BucketPolicy policy_;
  BucketLayout registered_layout_;
  BucketStorage storage_;
  const std::unique_ptr<CommHook> comm_hook_;
  int64_t step_ = 0;  // synchronized ones
  std::vector<int64_t> first_bucket_bytes_;
  StepTimes times_;  // of synchronized steps

  // Of the step under way. Hooks come from autograd threads: one at a time through the mutex.
  std::mutex mutex_;
  bool expecting_ = false;
  bool unused_marked_ = false;
  // Of a static graph: how often a gradient is added to in a step, and has yet to be in this one.
  std::vector<int64_t> uses_, uses_left_;
  std::vector<size_t> unused_;
  std::vector<bool> ready_;
  std::vector<size_t> pending_;  // gradients that a bucket still waits for
  size_t launched_ = 0;          // buckets
  std::vector<CommWorkPtr> works_;
  std::vector<CommHook::Finish> finishes_;  // instead of works_, with a comm hook
  std::vector<bool> used_;                  // on this rank, since the last synchronized step
  at::Tensor used_map_;                     // int32: ranks that use a parameter
  CommWorkPtr used_work_;

  bool rebuilt_ = false;
  std::vector<int64_t> ready_order_;  // of the first step
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace lockstep
