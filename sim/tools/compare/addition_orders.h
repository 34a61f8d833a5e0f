#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

// Can a mean (or a sum) over ranks, in one order of addition or another, have these very bits?
// A sum of W numbers in floating point depends on the order, and on whether it is divided before or
// after (docs/numerics.md). Nothing else that is right changes a bit.

// How ranks' contributions became the result, besides addition. Bits of a mask.
enum class MeanBy : uint8_t {
  sum,                // not divided
  multiplied_before,  // each contribution times 1/W, as DistributedDataParallel does
  divided_before,     // each contribution by W, as its gradient_as_bucket_view and default hooks do
  divided_after,      // the sum by W, as fully_shard over Gloo and programs of their own do
  multiplied_after,   // the sum times 1/W
};
inline constexpr int kMeansBy = 5;
inline constexpr uint32_t kAnyMean = (1U << kMeansBy) - 1;
inline constexpr uint32_t bit_of(MeanBy by) { return 1U << static_cast<unsigned>(by); }
// All but the sum: a mean and a sum are no two roundings of one number.
inline constexpr uint32_t kDivided = kAnyMean & ~bit_of(MeanBy::sum);

// Beyond, only rings and butterflies are tried.
inline constexpr size_t kEveryOrderRanks = 8;

// Those of `asked` with which some order of addition of `contributions` (one a rank) gives the bits
// of `result`. First rings, from any rank in both directions, and butterflies; where none does and
// there are at most kEveryOrderRanks, every order and every tree. All NaNs are alike.
template <class T>
uint32_t means_that_give(const std::vector<T>& contributions, T result, uint32_t asked);

extern template uint32_t means_that_give<float>(const std::vector<float>&, float, uint32_t);
extern template uint32_t means_that_give<double>(const std::vector<double>&, double, uint32_t);

}  // namespace lockstep
