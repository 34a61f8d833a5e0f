#include "sim/worker/wrong_gradients.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

// Enough for any hypothesis about them.
constexpr int64_t kMostTaken = 1 << 18;

size_t index_of(const MismatchContext& c, const StateEntry& entry) {
  return static_cast<size_t>(&entry - c.layout->entries.data());
}

bool presence_differs(const MismatchContext& c, size_t index) {
  const auto place = static_cast<size_t>(c.layout->presence_offset) + index;
  return c.run[place] != c.golden[place];
}

std::vector<int64_t> wrong_elements(const MismatchContext& c, size_t index) {
  const StateEntry& entry = c.layout->entries[index];
  std::vector<int64_t> found;
  for (int64_t i = 0; i < entry.numel; ++i)
    if (is_wrong(c, entry, i)) found.push_back(i);
  return found;
}

}  // namespace

bool is_wrong(const MismatchContext& c, const StateEntry& entry, int64_t i) {
  if (!c.element_bounds.empty() && entry.dtype == "float64")
    return is_beyond(value_at(entry, c.run, i), value_at(entry, c.golden, i),
                     c.element_bounds[index_of(c, entry)]);
  const auto width = static_cast<size_t>(entry.bytes / entry.numel);
  const auto place = static_cast<size_t>(entry.offset) + static_cast<size_t>(i) * width;
  return std::memcmp(c.run + place, c.golden + place, width) != 0;
}

bool is_wrong(const MismatchContext& c, const StateEntry& entry) {
  for (int64_t i = 0; i < entry.numel; ++i)
    if (is_wrong(c, entry, i)) return true;
  return false;
}

double value_at(const StateEntry& entry, const std::byte* state, int64_t i) {
  const std::byte* place = state + entry.offset;
  if (entry.dtype == "float64") {
    double value;
    std::memcpy(&value, place + i * 8, 8);
    return value;
  }
  if (entry.dtype == "bfloat16") {
    uint16_t bits;
    std::memcpy(&bits, place + i * 2, 2);
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
  if (entry.dtype != "float32") return 0;
  float value;
  std::memcpy(&value, place + i * 4, 4);
  return value;
}

WrongGradients::WrongGradients(const MismatchContext& c)
    : ranks(static_cast<size_t>(c.world_size)) {
  std::vector<std::vector<int64_t>> places;
  for (size_t index = 0; index < c.layout->entries.size(); ++index) {
    const StateEntry& entry = c.layout->entries[index];
    if (entry.kind != StateKind::gradient) continue;
    ++gradients;
    std::vector<int64_t> found = wrong_elements(c, index);
    if (found.empty() && !presence_differs(c, index)) continue;
    tensors.push_back({&entry, 0, 0, static_cast<int64_t>(found.size())});
    wrong += tensors.back().wrong;
    elements += entry.numel;
    places.push_back(std::move(found));
  }
  const int64_t every = (wrong + kMostTaken - 1) / kMostTaken;
  sampled = every > 1;
  const std::byte* own_state = c.shards != nullptr ? c.shards + c.rank * c.shard_bytes : c.local;
  shards.resize(c.shards != nullptr ? ranks : 0);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const StateEntry& entry = *tensors[t].entry;
    // One error of rounding is far below, any known defect far above.
    if (entry.dtype != "float64") same = 1e-5;
    tensors[t].begin = count();
    for (size_t k = 0; k < places[t].size();
         k += static_cast<size_t>(std::max<int64_t>(every, 1))) {
      const int64_t i = places[t][k];
      run.push_back(value_at(entry, c.run, i));
      golden.push_back(value_at(entry, c.golden, i));
      if (own_state != nullptr) own.push_back(value_at(entry, own_state, i));
      if (c.before != nullptr) before.push_back(value_at(entry, c.before, i));
      for (size_t rank = 0; rank < shards.size(); ++rank)
        shards[rank].push_back(
            value_at(entry, c.shards + static_cast<int64_t>(rank) * c.shard_bytes, i));
    }
    tensors[t].end = count();
  }
}

}  // namespace lockstep
