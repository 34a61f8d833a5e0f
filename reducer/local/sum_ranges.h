#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class SumOrder : uint8_t { ring, bcube, halving_doubling, ring_chunked, rank_order };
SumOrder sum_order(const std::string& algorithm);  // an unknown word aborts

// A range of elements that are added in the same order. The order is a small program in postfix:
// r >= 0 pushes rank r's values, kAdd replaces the two topmost by their sum.
struct SumRange {
  static constexpr int64_t kAdd = -1;
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int64_t> program;
};

// Covers [0, count) in ascending, non-empty ranges.
std::vector<SumRange> sum_ranges(SumOrder order, int64_t world_size, int64_t count,
                                 int64_t element_bytes);

// Replaces every rank's `count` elements by their sum, added as the ranges say. Works through tiles
// that stay in the first-level cache.
template <class T>
void sum_in_place(const std::vector<SumRange>& ranges, const std::vector<T*>& ranks);

}  // namespace lockstep
