#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// The memory that a tensor's elements take: where the first lies, and how far apart its neighbours
// are along each dimension. Views of one storage need not share a byte.
struct MemorySpan {
  std::string name;
  int64_t device = -1;  // equal addresses on two devices are two places
  uint64_t address = 0;
  int64_t element_bytes = 0;
  std::vector<int64_t> sizes, strides;  // strides count elements
};

// Do two elements of the tensor share memory (as those of an expanded one do)?
bool overlaps_itself(const MemorySpan& span);

// Do they share a byte?
bool overlap(const MemorySpan& a, const MemorySpan& b);

// Indices of the first two that do, the lesser first. Tensors without elements take no memory.
std::optional<std::pair<size_t, size_t>> first_overlap(const std::vector<MemorySpan>& spans);

}  // namespace lockstep
