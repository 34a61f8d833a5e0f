#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reducer/communicator.h"
#include "reducer/probe.h"

namespace lockstep {

// A gradient lies in memory as its parameter does (channels_last, transposed), if that fills its
// memory without gaps and no two elements share a place; otherwise it is contiguous. So LibTorch
// accumulates gradients, and DDP lays out its buckets.
inline bool fills_memory(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

// The elements of such a tensor as they lie in memory, one-dimensional: a view.
at::Tensor in_memory_order(const at::Tensor& tensor);

// The sum of sparse COO tensors of one shape and dtype, one of each rank, put into `out` coalesced.
// Each must be coalesced but for a single one. Added in order of rank, as ProcessGroupGloo does.
void put_sparse_sum(const std::vector<at::Tensor>& of_rank, at::Tensor out);

// Brings the ranks' bytes together, rank after rank: `own` into its place and all others' into
// theirs. bytes: how many each rank has.
using GatherBytes =
    std::function<void(const void* own, const std::vector<int64_t>& bytes, void* all)>;

// The sparse all-reduce of a backend that can gather. Throws CommError(rejected) where ranks have
// different numbers of sparse dimensions.
void sum_sparse_tensors(const at::Tensor& tensor, int64_t world_size, const GatherBytes& gather);

// One call of a Communicator as a value, so that backends and decorators have one function to write
// instead of eight.
struct CollectiveCall {
  Operation operation = Operation::barrier;
  at::Tensor output;  // all_reduce and broadcast work in place: output and input are the same
  at::Tensor input;   // undefined where the operation or this rank has none
  int64_t root = 0;
  Deadline deadline = kNoDeadline;
};

// A tensor of this call that every rank has: its dtype stands for the call's. Undefined: barrier.
const at::Tensor& own_tensor(const CollectiveCall& call);
// Bytes that the call moves: the same number on every rank.
int64_t collective_bytes(const CollectiveCall& call, int64_t world_size);
// "rank 1" or "ranks 1, 3", for error messages.
std::string named_ranks(const std::vector<int64_t>& ranks, const RankNames& numbers = {});
// The place of the first of those that most are like; votes: how many these are.
size_t most_common(const std::vector<std::string>& texts, int64_t* votes = nullptr);
// "all_reduce of 1024 float32", likewise.
std::string describe(const CollectiveCall& call);

// Turns the eight operations into submit() after checking shapes (a wrong one is our own bug).
class CollectiveCommunicator : public Communicator {
 public:
  CollectiveCommunicator(int64_t rank, int64_t world_size) : rank_(rank), size_(world_size) {}
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return size_; }
  CommWorkPtr all_reduce(const at::Tensor& tensor, Deadline deadline) override;
  CommWorkPtr broadcast(const at::Tensor& tensor, int64_t root, Deadline deadline) override;
  CommWorkPtr all_gather(const at::Tensor& output, const at::Tensor& input,
                         Deadline deadline) override;
  CommWorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                             Deadline deadline) override;
  CommWorkPtr scatter(const at::Tensor& output, const at::Tensor& input, int64_t root,
                      Deadline deadline) override;
  CommWorkPtr gather(const at::Tensor& output, const at::Tensor& input, int64_t root,
                     Deadline deadline) override;
  CommWorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input,
                         Deadline deadline) override;
  CommWorkPtr barrier(Deadline deadline) override;
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override;

 protected:
  virtual CommWorkPtr submit(CollectiveCall call) = 0;

 private:
  CommWorkPtr checked(CollectiveCall call, const at::Tensor& whole, const at::Tensor& part);
  const int64_t rank_;
  const int64_t size_;
};

// A communicator in front of `inner`, which must outlive it. What it does not change passes
// through.
class CommDecorator : public CollectiveCommunicator {
 public:
  explicit CommDecorator(Communicator& inner)
      : CollectiveCommunicator(inner.rank(), inner.world_size()), inner_(inner) {}
  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override;
  void close(Deadline deadline) noexcept override { inner_.close(deadline); }
  void begin_backward() override;
  void end_backward() override;

 protected:
  // bucket: for how many calls averages_bucket() held before it in this backward; -1 outside a
  // backward and where it does not hold.
  virtual CommWorkPtr submit(CollectiveCall call, int64_t bucket) = 0;
  Communicator& inner() const { return inner_; }

 private:
  CommWorkPtr submit(CollectiveCall call) final;
  Communicator& inner_;
  // Hooks run on the autograd thread, begin and end on the caller's.
  std::atomic<int64_t> next_bucket_{0};
  std::atomic<bool> in_backward_{false};
};

// Is it an all_reduce or a reduce_scatter?
bool is_sum(Operation operation);

// Do reducers bring their ranks' buckets together by it, one call a bucket: a sum (all_reduce,
// reduce_scatter), or an all_to_all of what a rank adds itself?
bool averages_bucket(Operation operation);

// Calls the operation of `call` on another communicator.
CommWorkPtr forward(Communicator& communicator, const CollectiveCall& call);

// What a group of one rank has to do for `call`, at once.
void run_alone(const CollectiveCall& call);

// This rank's part of a tensor that holds one part a rank (a view, one-dimensional).
at::Tensor part_of(const at::Tensor& whole, int64_t rank, int64_t world_size);

}  // namespace lockstep
