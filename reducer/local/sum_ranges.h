#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/communicator.h"

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

// Elements [begin, end) of the sum of the ranks' `inputs`, added as the ranges say, put into each
// of `outputs`, which may be inputs. All pointers: to element `begin`. Works through tiles that
// stay in the first-level cache. T: what for_summable() knows.
template <class T>
void sum_into(const std::vector<SumRange>& ranges, int64_t begin, int64_t end,
              const std::vector<const T*>& inputs, const std::vector<T*>& outputs);

// Replaces every rank's elements, as many as the ranges cover, by their sum.
template <class T>
void sum_in_place(const std::vector<SumRange>& ranges, const std::vector<T*>& ranks) {
  if (ranges.empty()) return;
  sum_into<T>(ranges, 0, ranges.back().end, {ranks.begin(), ranks.end()}, ranks);
}

// Calls visit(T{}) with the C++ type of a dtype that can be added; throws CommError(rejected) for
// any other.
template <class Visit>
void for_summable(at::ScalarType dtype, Visit&& visit) {
  switch (dtype) {
    case at::kFloat:
      return visit(float{});
    case at::kDouble:
      return visit(double{});
    case at::kInt:
      return visit(int32_t{});
    case at::kLong:
      return visit(int64_t{});
    case at::kByte:
      return visit(uint8_t{});
    case at::kChar:
      return visit(int8_t{});
    case at::kHalf:
      return visit(c10::Half{});
    case at::kBFloat16:
      return visit(c10::BFloat16{});
    default:
      throw CommError(CommFailure::rejected,
                      std::string("all_reduce: cannot add ") + c10::toString(dtype));
  }
}

}  // namespace lockstep
