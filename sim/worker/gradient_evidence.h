#pragma once

#include <vector>

#include "sim/worker/diagnose.h"

namespace lockstep {

// An element of a state as a number; 0 where its dtype is none of the floating ones.
double value_at(const StateEntry& entry, const std::byte* state, int64_t element);

// Is it not the golden run's? Lanes that compare bits say so where one differs, lane float64 where
// it is beyond its bound.
bool is_wrong(const MismatchContext& context, const StateEntry& entry, int64_t element);
bool is_wrong(const MismatchContext& context, const StateEntry& entry);  // any of its elements

// The wrong elements of all gradients, one after the other, beside what could explain them. Of very
// many every n-th is taken.
struct WrongGradients {
  using Values = std::vector<double>;

  explicit WrongGradients(const MismatchContext& context);

  struct Tensor {
    const StateEntry* entry;
    size_t begin, end;  // in the values
    int64_t wrong;      // elements, all of them
  };
  std::vector<Tensor> tensors;      // those with a wrong element
  int64_t gradients = 0;            // of the state, wrong or not
  int64_t wrong = 0, elements = 0;  // wrong elements of the wrong tensors, and all of theirs
  bool sampled = false;
  size_t ranks = 1;

  Values run, golden;
  Values own;                  // this rank's own, undivided; empty where not known
  Values before;               // the run's, one step earlier; empty where not known
  std::vector<Values> shards;  // the golden run's, of each rank; empty where not known
  // Two results of right arithmetic in another order are so close, relative to their size.
  double same = 1e-9;

  size_t count() const { return run.size(); }
  bool is_double() const { return same < 1e-6; }
  double unit() const { return is_double() ? 0x1p-53 : 0x1p-24; }  // half of the last bit of 1
};

// Does every wrong element hold a value that the golden run's gradients have in another place, as
// when two buckets are exchanged, or a view begins at another element?
bool is_misplaced(const MismatchContext& context, const WrongGradients& wrong);

// Is the run what comes out where this rank's own gradients were added in each other's places?
bool is_own_misplaced(const WrongGradients& wrong, int64_t world_size);

// Numbers in a sketch: what it can tell apart are fewer ranks than that.
inline constexpr size_t kSketchSize = 48;

// The wrong elements' values, each with a random sign, added up kSketchSize times. Sums of values
// have the sums of their sketches: how a result was put together from the gradients of all ranks
// can be solved for from these alone. Empty where the elements are too few to tell.
std::vector<double> sketch_of(const WrongGradients& wrong, const WrongGradients::Values& values);

// Of the gradients that differ: what of a list of known defects fits all of their wrong elements.
// One element fits any factor: where few are wrong, only what has no free factor is tried.
void describe_gradients(const MismatchContext& context, MismatchEvidence* evidence);

}  // namespace lockstep
