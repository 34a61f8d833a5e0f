#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "scenarios/scenario.h"

namespace lockstep {

// What goes wrong with one run of numbers, wherever a mutant found them: a gradient, or a rank's
// addend of a bucket. Kinds of mutants are an operation and a place: "drop_gradient".
//   flip   one bit of an element          drop   all zero
//   double all twice                      swap   first and second half exchanged
//   shift  from `element` on each has the value of the one before it: a slice at a wrong offset
//   stale  those of the last time         cast   through bfloat16 and back: a cast too early

// "drop" of "drop_gradient" at place "gradient"; none where the kind is of another place.
std::optional<std::string> operation_at(const std::string& kind, const std::string& place);

// Changes `values`, which may have any shape, in place; sparse: those that it holds. `last` is what
// stood at this place the last time, of as many elements, or undefined: without it nothing is
// stale. Returns false where the operation has nothing to act on.
bool damage(const std::string& operation, const MutantSpec& mutant, const at::Tensor& last,
            at::Tensor values);

// One bit of one element; by default the highest of the mantissa of the first.
void flip_bit(const MutantSpec& mutant, at::Tensor values);

}  // namespace lockstep
