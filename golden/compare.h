#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "golden/state.h"

namespace lockstep {

// Comparison of raw states: no LibTorch, no allocation where everything agrees.

// The first entry (in the order of kinds, then registration) whose bytes or presence differ; one
// NaN is as good as another.
struct BitDifference {
  int64_t entry = 0;    // index into layout.entries
  int64_t element = 0;  // flat index of the first differing element
  double run_value = 0;
  double golden_value = 0;
  uint64_t run_bits = 0;  // of the element, in its own width
  uint64_t golden_bits = 0;
  int64_t differing = 0;  // elements of this entry
  int64_t numel = 0;
  uint64_t ulp = 0;      // at the first differing element; UINT64_MAX where not both finite
  uint64_t max_ulp = 0;  // over the entry
  bool run_absent = false;
  bool golden_absent = false;
};
std::optional<BitDifference> first_bit_difference(const StateLayout& layout, const std::byte* run,
                                                  const std::byte* golden);
// Of one entry; nothing if it is equal.
std::optional<BitDifference> bit_difference(const StateLayout& layout, int64_t entry,
                                            const std::byte* run, const std::byte* golden);

// What must-fail controls do: one bit of the entry's first element is turned, of a NaN so that it
// is none. Twice is nothing, but for a NaN.
void damage_first_element(const StateEntry& entry, std::byte* state);

// Number of elements of all parameters that differ in any bit ("42 of 100").
struct DifferingCount {
  int64_t differing = 0;
  int64_t total = 0;
};
DifferingCount count_differing(const StateLayout& layout, StateKind kind, const std::byte* run,
                               const std::byte* golden);

// Lane float64: L2 norm of the difference of the worst tensor, relative to
// max(its own norm, 1e-3 x the largest norm of its kind) of the golden (docs/numerics.md). Both
// states in float64 with the same layout. NaN or infinity in either counts as an infinite distance.
// A kind whose golden norms are all zero is compared absolutely.
struct Distance {
  double worst = 0;
  int64_t entry = -1;
  int64_t first_beyond = -1;  // the first entry, in their order, beyond kFloat64Bound; -1: none
};
inline constexpr double kFloat64Bound = 1e-12;
// Up to here a correct run may still come where a step is ill-conditioned (normalization over few
// values, a centered RMSprop: 4 of 10,000 drawn runs came to 1.0e-12 to 2.1e-12), and hardly any
// defect stays below: in between nothing is said.
inline constexpr double kFloat64Wrong = 1e-10;
Distance worst_distance(const StateLayout& layout, const std::byte* run, const std::byte* golden);

// By how much an element of each entry may be off: an entry of which none is off by more is within
// kFloat64Bound as a whole. 0 where bits are compared.
std::vector<double> element_bounds(const StateLayout& layout, const std::byte* golden);
// Is |run - golden| beyond the bound, or one of them not finite?
bool is_beyond(double run, double golden, double bound);
// Of one entry the element that is farthest off, and how many are beyond its bound; nothing if none
// is. What is not finite is farther than all else.
std::optional<BitDifference> farthest_difference(const StateLayout& layout, int64_t entry,
                                                 const std::byte* run, const std::byte* golden);

// L2 norm over all tensors of a kind that are there, of floating dtypes.
double norm_of_kind(const StateLayout& layout, StateKind kind, const std::byte* state);

// Are all tensors of a kind close, as torch.testing.assert_close asks by default: every element
// within atol + rtol x |golden's|, with the tolerances of its dtype?
bool all_close(const StateLayout& layout, StateKind kind, const std::byte* run,
               const std::byte* golden);

// Number of representable values between two floats of the same width; UINT64_MAX if one is not
// finite (unless their bits are equal).
uint64_t ulp_distance(float a, float b);
uint64_t ulp_distance(double a, double b);

// "fc2.weight" element 1034 of shape [64, 16] -> [64, 10]
std::vector<int64_t> element_index(int64_t flat, const std::vector<int64_t>& shape);

}  // namespace lockstep
