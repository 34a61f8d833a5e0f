#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "reducer/base/reducer_base.h"
#include "reducer/bucket.h"
#include "reducer/communicator.h"
#include "reducer/kinds/bucketed.h"
#include "reducer/reducer.h"
#include "reducer/shard_tree.h"

namespace lockstep {

// Averages whose bits do not depend on the number of ranks: options.virtual_shards gradients, each
// of a shard by itself, are added in one fixed tree (shard_tree.h) and divided once. A rank
// computes shards_of_rank(), one after the other, as gradient accumulation does: all micro-batches
// but its last one of a step are not synchronized. Of a shard of several micro-batches the sum in
// their order counts.
//
// grad() is the reducer's from the first forward of a step to its end: every shard begins with an
// undefined one. What it was comes back where no shard has a gradient. Every shard's forwards begin
// with the buffers of the step's beginning; the step leaves those that shard 0 made, which rank 0
// broadcasts before the next one. So buffers, too, are the same for any number of ranks.
//
// With options.shards_together the shards of a rank take turns (enter_shard()): each has gradients
// and buffers of its own, which are the parameters' and the model's while it is its turn.
//
// A bucket goes out as soon as all shards of the rank have filled it, the last one's backward
// mostly (where they take turns and unused parameters are searched: after backward, since ranks
// whose shards use different ones would not agree on what comes between two collectives of a
// layer). Only sums that a rank cannot add further travel, its roots_of(), in one all_to_all a
// bucket: a rank adds what it gets of its part of the bucket, and the parts are gathered after
// backward. Where one addition is left (is_one_addition()), in an all-reduce. Buckets are closed by
// the caps in registration order, and never rebuilt.
class InvariantReducer : public ReducerBase {
 public:
  InvariantReducer(const ReducerOptions& options, const NamedTensors& parameters,
                   const NamedTensors& buffers, Communicator& communicator, Probe& probe);
  ~InvariantReducer() override;
  InvariantReducer(const InvariantReducer&) = delete;
  InvariantReducer& operator=(const InvariantReducer&) = delete;

  void before_forward(bool synchronizes) override;
  void before_backward(const std::vector<at::Tensor>& outputs) override;
  void after_backward() override;
  void enter_shard(int64_t index) override;
  BucketLayout layout() const override { return registered_layout_; }
  ReducerData data() override;

 private:
  using Roots = std::vector<std::pair<ShardNode, at::Tensor>>;
  struct Bucket {
    std::vector<int64_t> places;
    int64_t elements = 0;  // padded to as many parts as ranks
    at::TensorOptions options;
    ShardTree<at::Tensor> tree;
    // Of each shard under way, or of the one that is, on top of its left neighbour's; and how many
    // gradients are in it.
    std::vector<at::Tensor> shard;
    std::vector<size_t> filled;
    int64_t shards = 0;               // that have filled it
    std::vector<at::Tensor> spare{};  // memory of earlier ones
    Roots roots{};                    // on their way
    CommWorkPtr work{};
    at::Tensor sent{};
    at::Tensor exchanged{};  // [ranks, rows, part]: this rank's part of every rank's roots
    at::Tensor part{}, averages{};
  };

  // A shard's own, while others have their turn.
  struct Turn {
    std::vector<at::Tensor> gradients, buffers;
    std::vector<bool> taken;
    int64_t micro_batches = 0;
  };

  void lay_out();
  at::Tensor view(const at::Tensor& flat, size_t place) const;
  bool exchanges_parts() const { return world_size_ > 1 && !is_one_addition(world_size_, rows_); }
  bool ends_shard() const { return micro_batches_ % options_.micro_batches_per_shard == 0; }
  int64_t shard() const;
  size_t last_turn() const { return turns_.size() - 1; }
  bool is_synchronized() const;
  void begin_turns();
  void change_turn(size_t next);
  void close_turns();
  void drop_turns();
  void begin_step();
  void begin_shard();
  void close_shard();
  void restore_buffers(const std::vector<at::Tensor>& values);
  void hook(size_t place);
  void mark_unused();
  bool has_left_neighbour(int64_t shard) const;
  void take(size_t place);
  void launch_ready_buckets();
  at::Tensor memory_of(const Bucket& bucket, int64_t elements) const;
  void launch(Bucket& bucket);
  at::Tensor rows_of(const Bucket& bucket) const;
  at::Tensor sum_of_roots(Bucket& bucket) const;
  void average(Bucket& bucket);
  void tell_used();
  void write_back(size_t place, const at::Tensor& averages);

  const ShardRange range_;
  const int64_t rows_;                         // roots of the rank that has most
  std::vector<std::vector<ShardNode>> roots_;  // of each rank
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // by place
  std::vector<int64_t> offset_;
  BucketLayout registered_layout_;
  const std::vector<at::Tensor> buffers_;
  StepTimes times_;

  // Of the step under way. Hooks come from autograd threads: one at a time through the mutex.
  std::mutex mutex_;
  int64_t micro_batches_ = 0;  // begun; of one shard, where they take turns; 0: between steps
  std::vector<Turn> turns_;    // of this rank's shards; one without turns
  size_t turn_ = 0;
  bool synchronizes_ = false;
  std::vector<at::Tensor> found_;  // gradients
  std::vector<at::Tensor> start_buffers_, first_buffers_;
  std::vector<bool> taken_;  // in this shard
  std::vector<bool> used_;   // in any of this rank
  std::vector<size_t> unused_;
  bool unused_marked_ = false;
  size_t launched_ = 0;
  at::Tensor used_map_, used_maps_;
  CommWorkPtr used_work_;
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace lockstep
