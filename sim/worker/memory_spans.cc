#include "sim/worker/memory_spans.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace lockstep {
namespace {

int64_t elements_of(const MemorySpan& span) {
  return std::accumulate(span.sizes.begin(), span.sizes.end(), int64_t{1}, std::multiplies<>());
}

// First byte, and the one behind the last; strides of a tensor are not negative.
std::pair<uint64_t, uint64_t> range_of(const MemorySpan& span) {
  int64_t last = 0;
  for (size_t i = 0; i < span.sizes.size(); ++i) last += (span.sizes[i] - 1) * span.strides[i];
  return {span.address, span.address + static_cast<uint64_t>((last + 1) * span.element_bytes)};
}

// Without holes: its elements fill their range, each place once.
bool is_dense(const MemorySpan& span) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride, size
  for (size_t i = 0; i < span.sizes.size(); ++i)
    if (span.sizes[i] != 1) dimensions.emplace_back(span.strides[i], span.sizes[i]);
  std::sort(dimensions.begin(), dimensions.end());
  int64_t wanted = 1;
  for (const auto& [stride, size] : dimensions) {
    if (stride != wanted) return false;
    wanted *= size;
  }
  return true;
}

// Of every element, ascending.
std::vector<uint64_t> addresses_of(const MemorySpan& span) {
  std::vector<uint64_t> found = {span.address};
  for (size_t i = 0; i < span.sizes.size(); ++i) {
    const size_t before = found.size();
    for (int64_t index = 1; index < span.sizes[i]; ++index)
      for (size_t j = 0; j < before; ++j)
        found.push_back(found[j] +
                        static_cast<uint64_t>(index * span.strides[i] * span.element_bytes));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

bool overlaps_itself(const MemorySpan& span) {
  if (elements_of(span) < 2 || is_dense(span)) return false;
  const std::vector<uint64_t> addresses = addresses_of(span);
  return std::adjacent_find(addresses.begin(), addresses.end()) != addresses.end();
}

bool overlap(const MemorySpan& a, const MemorySpan& b) {
  if (a.device != b.device || elements_of(a) == 0 || elements_of(b) == 0) return false;
  const auto [a_begin, a_end] = range_of(a);
  const auto [b_begin, b_end] = range_of(b);
  if (a_end <= b_begin || b_end <= a_begin) return false;
  if (is_dense(a) && is_dense(b)) return true;
  // Such as two columns of one matrix.
  const std::vector<uint64_t> of_a = addresses_of(a), of_b = addresses_of(b);
  for (size_t i = 0, j = 0; i < of_a.size() && j < of_b.size();) {
    if (of_a[i] + static_cast<uint64_t>(a.element_bytes) <= of_b[j])
      ++i;
    else if (of_b[j] + static_cast<uint64_t>(b.element_bytes) <= of_a[i])
      ++j;
    else
      return true;
  }
  return false;
}

std::optional<std::pair<size_t, size_t>> first_overlap(const std::vector<MemorySpan>& spans) {
  std::vector<size_t> order;
  for (size_t i = 0; i < spans.size(); ++i)
    if (elements_of(spans[i]) > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(spans[a].device, spans[a].address) <
           std::pair(spans[b].device, spans[b].address);
  });
  std::optional<std::pair<size_t, size_t>> first;
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = i + 1; j < order.size(); ++j) {
      const MemorySpan &a = spans[order[i]], &b = spans[order[j]];
      if (a.device != b.device || b.address >= range_of(a).second) break;
      if (!overlap(a, b)) continue;
      const std::pair<size_t, size_t> found = std::minmax(order[i], order[j]);
      if (!first || found < *first) first = found;
    }
  return first;
}

}  // namespace lockstep
