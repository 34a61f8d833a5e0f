#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// A number that was fitted, with its 95 % bootstrap interval.
struct FittedNumber {
  double value = 0, low = 0, high = 0;
};
// The middle 95 % of what resampling gave; `drawn` must not be empty.
FittedNumber interval_of(double value, std::vector<double> drawn);

// A number that only some runs show: without a value the reason, and what runs would.
struct MaybeFitted {
  std::optional<FittedNumber> number;
  std::string unknown;
};

// One backward of real compute on one rank.
struct BackwardSample {
  // What is computed. Of equal words the backward of a rank is the same but for its reducer.
  std::string compute;
  int64_t buckets = 0;
  double ns = 0;
  double overlapped_ns = 0;  // of it, with a bucket's collective on the wire
};

// What DDP and its collectives cost backward:
//   backward = compute + bucket x buckets + s / (1 + s) x overlapped,
// s being the part by which compute is slower under a collective. By least squares over the medians
// of each number of buckets; each kind of compute has its own base. What the runs do not tell from
// 0, or from the other, is left out.
struct BackwardCosts {
  MaybeFitted bucket_us, overlap_slowdown;
};
BackwardCosts backward_costs(const std::vector<BackwardSample>& samples);

// The sample's backward without these costs.
double bare_backward_ns(const BackwardSample& sample, const BackwardCosts& costs);

// Least squares: x for which rows . x comes closest to y. Nothing where rows are fewer than their
// numbers, or some of these cannot be told apart. All rows are equally long, at most 3.
std::optional<std::vector<double>> least_squares(const std::vector<std::vector<double>>& rows,
                                                 const std::vector<double>& y);

inline constexpr int kResamplings = 400;
// Of `of` values the one that resampling `round` takes for its `index`-th.
size_t resampled_place(int round, size_t index, size_t of);

}  // namespace lockstep
