#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>

#include "reducer/communicator.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Defects of the sums of buckets, for the decorator in sim/fault/mutants.cc, which knows when and
// where they act. One thread.
//   OPERATION_contribution  a rank's addend, by the operations of sim/fault/damage.h
//   short_slice             from `element` on the bucket's result is this rank's addend: a slice
//                           that is too short
//   reorder_sum             addends are gathered and added in descending order of ranks
//   drop_broadcast          what rank 0 sends at construction does not reach a rank
class BucketMutants {
 public:
  // Of every addend, before it is changed: stale ones are known from it.
  void remember(const std::vector<MutantSpec>& mutants, int64_t bucket, const at::Tensor& addend);

  // Before the sum. True where it changed the addend.
  bool change_addend(const MutantSpec& mutant, int64_t bucket, const at::Tensor& addend) const;

  // What short_slice does to the result; null for other kinds. Before the sum.
  static std::function<void()> short_slice(const MutantSpec& mutant, const at::Tensor& tensor);

 private:
  struct Addends {
    at::Tensor now, last;  // of this backward, of the one before
  };
  std::map<int64_t, Addends> addends_;  // by bucket
};

// all_reduce() of a dense tensor by all_gather(), added from the last rank to the first. All ranks
// must do so.
CommWorkPtr reordered_all_reduce(Communicator& group, const at::Tensor& tensor, Deadline deadline);

// broadcast() that this rank takes part in, and from which it keeps nothing.
CommWorkPtr unheard_broadcast(Communicator& group, const at::Tensor& tensor, int64_t root,
                              Deadline deadline);

}  // namespace lockstep
