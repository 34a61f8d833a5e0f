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

}  // namespace lockstep
