#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "reducer/communicator.h"
#include "scenarios/scenario.h"

namespace lockstep {

// What goes wrong with one run of numbers, wherever a mutant found them: a gradient, or a rank's
// addend of a bucket. Kinds of mutants are an operation and a place: "drop_gradient".
//   flip   one bit of an element          drop   all zero
//   double all twice                      swap   first and second half exchanged
//   shift  from `element` on each has the value of the one before it: a slice at a wrong offset
//   stale  those of the last time         cast   through bfloat16 and back: a cast too early
//   flush  what is below the smallest normal number: zero

// "drop" of "drop_gradient" at place "gradient"; none where the kind is of another place.
std::optional<std::string> operation_at(const std::string& kind, const std::string& place);

// Changes `values`, which may have any shape, in place; sparse: those that it holds. `last` is what
// stood at this place the last time, of as many elements, or undefined: without it nothing is
// stale. Returns false where the operation has nothing to act on.
bool damage(const std::string& operation, const MutantSpec& mutant, const at::Tensor& last,
            at::Tensor values);

// One bit of one element; by default the highest of the mantissa of the first.
void flip_bit(const MutantSpec& mutant, at::Tensor values);

// Defects of the sums of buckets, for the decorator in sim/fault/mutants.cc, which knows when and
// where they act. One thread.
//   OPERATION_contribution  a rank's addend, by the operations of sim/fault/bucket_mutants.h
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
