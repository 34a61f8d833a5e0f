#include "sim/tools/compare/addition_orders.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "scenarios/base/same_bits.h"

namespace lockstep {
namespace {

template <class T>
std::vector<T> terms_of(const std::vector<T>& contributions, MeanBy by) {
  std::vector<T> terms = contributions;
  const auto world = static_cast<T>(contributions.size());
  for (T& term : terms) {
    if (by == MeanBy::multiplied_before) term *= T{1} / world;
    if (by == MeanBy::divided_before) term /= world;
  }
  return terms;
}

template <class T>
T result_of(T sum, MeanBy by, size_t ranks) {
  const auto world = static_cast<T>(ranks);
  if (by == MeanBy::divided_after) return sum / world;
  if (by == MeanBy::multiplied_after) return sum * (T{1} / world);
  return sum;
}

// From `begin` on, `stride` (1, or ranks - 1: downwards) apart.
template <class T>
T ring_sum(const std::vector<T>& terms, size_t begin, size_t stride) {
  T sum = terms[begin];
  for (size_t i = 1, at = begin; i < terms.size(); ++i) {
    at = (at + stride) % terms.size();
    sum += terms[at];
  }
  return sum;
}

// Of a power of two: neighbours first, or those half the ranks apart.
template <class T>
T butterfly_sum(std::vector<T> terms, bool neighbours_first) {
  while (terms.size() > 1) {
    const size_t half = terms.size() / 2;
    for (size_t i = 0; i < half; ++i)
      terms[i] = neighbours_first ? terms[2 * i] + terms[2 * i + 1] : terms[i] + terms[i + half];
    terms.resize(half);
  }
  return terms[0];
}

template <class T>
bool usual_order_gives(const std::vector<T>& terms, const std::function<bool(T)>& wanted) {
  for (size_t begin = 0; begin < terms.size(); ++begin)
    for (const size_t stride : {size_t{1}, terms.size() - 1})
      if (wanted(ring_sum(terms, begin, stride))) return true;
  return std::has_single_bit(terms.size()) &&
         (wanted(butterfly_sum(terms, true)) || wanted(butterfly_sum(terms, false)));
}

template <class T>
void add_distinct(T value, std::vector<T>* values) {
  for (const T known : *values)
    if (same_bits(known, value)) return;
  values->push_back(value);
}

// Of each set of ranks, as a mask, all sums that any tree over them has; they are few, since most
// round alike.
template <class T>
bool any_tree_gives(const std::vector<T>& terms, const std::function<bool(T)>& wanted) {
  const size_t all = (size_t{1} << terms.size()) - 1;
  std::vector<std::vector<T>> sums(all + 1);
  for (size_t set = 1; set <= all; ++set) {
    const size_t lowest = set & (~set + 1), others = set ^ lowest;
    if (others == 0) {
      sums[set] = {terms[static_cast<size_t>(std::countr_zero(set))]};
      continue;
    }
    for (size_t right = others; right != 0; right = (right - 1) & others)
      for (const T a : sums[set ^ right])
        for (const T b : sums[right]) add_distinct(static_cast<T>(a + b), &sums[set]);
  }
  return std::any_of(sums[all].begin(), sums[all].end(), wanted);
}

}  // namespace

template <class T>
uint32_t means_that_give(const std::vector<T>& contributions, T result, uint32_t asked) {
  uint32_t found = 0;
  for (const bool every_tree : {false, true}) {
    if (every_tree && (found != 0 || contributions.size() > kEveryOrderRanks)) break;
    for (int i = 0; i < kMeansBy; ++i) {
      const auto by = static_cast<MeanBy>(i);
      if ((asked & bit_of(by)) == 0) continue;
      const std::vector<T> terms = terms_of(contributions, by);
      const std::function<bool(T)> wanted = [&](T sum) {
        return same_bits(result_of(sum, by, terms.size()), result);
      };
      const bool gives =
          every_tree ? any_tree_gives(terms, wanted) : usual_order_gives(terms, wanted);
      if (gives) found |= bit_of(by);
    }
  }
  return found;
}

template uint32_t means_that_give<float>(const std::vector<float>&, float, uint32_t);
template uint32_t means_that_give<double>(const std::vector<double>&, double, uint32_t);

}  // namespace lockstep
