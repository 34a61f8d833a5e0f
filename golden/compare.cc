#include "golden/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr uint64_t kNoUlp = std::numeric_limits<uint64_t>::max();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct Element {
  uint64_t bits = 0;
  double value = 0;
};

template <class Bits>
Bits read(const std::byte* data, int64_t index) {
  Bits bits;
  std::memcpy(&bits, data + index * static_cast<int64_t>(sizeof bits), sizeof bits);
  return bits;
}

// An element of any dtype; integers are values of their own.
Element element(const StateEntry& entry, const std::byte* data, int64_t index) {
  switch (entry.bytes / entry.numel) {
    case 8: {
      const auto bits = read<uint64_t>(data, index);
      if (entry.dtype == "float64") return {bits, std::bit_cast<double>(bits)};
      return {bits, static_cast<double>(static_cast<int64_t>(bits))};
    }
    case 4: {
      const auto bits = read<uint32_t>(data, index);
      if (entry.dtype == "float32") return {bits, std::bit_cast<float>(bits)};
      return {bits, static_cast<double>(static_cast<int32_t>(bits))};
    }
    case 2: {
      const auto bits = read<uint16_t>(data, index);
      if (entry.dtype == "bfloat16") return {bits, std::bit_cast<float>(uint32_t{bits} << 16)};
      return {bits, static_cast<double>(bits)};
    }
    default: {
      const auto bits = read<uint8_t>(data, index);
      return {bits, static_cast<double>(bits)};
    }
  }
}

bool is_floating(const StateEntry& entry) {
  return entry.dtype.starts_with("float") || entry.dtype == "bfloat16";
}

// Which NaN an operation makes is the processor's choice, and the library's: any two are equal.
bool same(const StateEntry& entry, const Element& a, const Element& b) {
  return a.bits == b.bits || (is_floating(entry) && std::isnan(a.value) && std::isnan(b.value));
}

uint64_t ulp_of(const StateEntry& entry, const Element& a, const Element& b) {
  if (entry.dtype == "float64") return ulp_distance(a.value, b.value);
  if (entry.dtype == "float32")
    return ulp_distance(std::bit_cast<float>(static_cast<uint32_t>(a.bits)),
                        std::bit_cast<float>(static_cast<uint32_t>(b.bits)));
  return a.bits > b.bits ? a.bits - b.bits : b.bits - a.bits;
}

// Maps floats to integers so that neighbours are 1 apart and both zeros are equal.
template <class Bits, class Float>
uint64_t float_distance(Float a, Float b) {
  const Bits x = std::bit_cast<Bits>(a);
  const Bits y = std::bit_cast<Bits>(b);
  if (x == y) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return kNoUlp;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  const Bits far_x = x & ~kSign;
  const Bits far_y = y & ~kSign;
  if ((x & kSign) != (y & kSign)) return uint64_t{far_x} + far_y;
  return far_x > far_y ? far_x - far_y : far_y - far_x;
}

// Defaults of torch.testing.assert_close.
struct Tolerance {
  double rtol, atol;
};
Tolerance tolerance_of(const StateEntry& entry) {
  if (entry.dtype == "float64") return {1e-7, 1e-7};
  if (entry.dtype == "float32") return {1.3e-6, 1e-5};
  if (entry.dtype == "bfloat16") return {1.6e-2, 1e-5};
  return {0, 0};
}

struct Presence {
  bool run;
  bool golden;
};

Presence presence(const StateLayout& layout, int64_t entry, const std::byte* run,
                  const std::byte* golden) {
  const int64_t at = layout.presence_offset + entry;
  return {run[at] != std::byte{0}, golden[at] != std::byte{0}};
}

// L2 norm of `difference` ? a - b : a, in a way that neither overflows nor loses small values.
double norm(const double* a, const double* b, int64_t count) {
  const auto value = [&](int64_t i) { return b == nullptr ? a[i] : a[i] - b[i]; };
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += value(i) * value(i);
  if (std::isnan(sum) || (sum > 1e-280 && sum < 1e280)) return std::sqrt(sum);
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(value(i)));
  if (largest == 0 || std::isinf(largest)) return largest;
  sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += (value(i) / largest) * (value(i) / largest);
  return largest * std::sqrt(sum);
}

const double* doubles(const StateEntry& entry, const std::byte* state) {
  return reinterpret_cast<const double*>(state + entry.offset);
}

double absolute_distance(const StateLayout& layout, int64_t index, const std::byte* run,
                         const std::byte* golden) {
  const StateEntry& entry = layout.entries[static_cast<size_t>(index)];
  const Presence present = presence(layout, index, run, golden);
  if (present.run != present.golden) return kInfinite;
  if (entry.dtype != "float64") return bit_difference(layout, index, run, golden) ? kInfinite : 0;
  const double distance = norm(doubles(entry, run), doubles(entry, golden), entry.numel);
  const double size = norm(doubles(entry, run), nullptr, entry.numel);
  return std::isfinite(distance) && std::isfinite(size) ? distance : kInfinite;
}

// What the distance of each tensor is measured against.
struct Scales {
  Scales(const StateLayout& layout, const std::byte* golden)
      : entries(layout.entries), norms(layout.entries.size()) {
    for (size_t i = 0; i < norms.size(); ++i) {
      const StateEntry& entry = entries[i];
      if (entry.dtype == "float64") norms[i] = norm(doubles(entry, golden), nullptr, entry.numel);
      double& largest = floors[static_cast<size_t>(entry.kind)];
      largest = std::max(largest, 1e-3 * norms[i]);
    }
  }
  double of(size_t entry) const {
    return std::max(norms[entry], floors[static_cast<size_t>(entries[entry].kind)]);
  }

  const std::vector<StateEntry>& entries;
  std::vector<double> norms;  // of the golden tensors
  double floors[4] = {};      // by kind
};

void show(int64_t at, const Element& run, const Element& golden, uint64_t ulp,
          BitDifference* found) {
  found->element = at;
  found->run_value = run.value;
  found->golden_value = golden.value;
  found->run_bits = run.bits;
  found->golden_bits = golden.bits;
  found->ulp = ulp;
}

}  // namespace

std::optional<BitDifference> bit_difference(const StateLayout& layout, int64_t entry,
                                            const std::byte* run, const std::byte* golden) {
  const StateEntry& e = layout.entries.at(static_cast<size_t>(entry));
  const Presence present = presence(layout, entry, run, golden);
  const std::byte* a = run + e.offset;
  const std::byte* b = golden + e.offset;
  if (present.run == present.golden && std::memcmp(a, b, static_cast<size_t>(e.bytes)) == 0)
    return std::nullopt;
  BitDifference found;
  found.entry = entry;
  found.numel = e.numel;
  found.run_absent = !present.run;
  found.golden_absent = !present.golden;
  for (int64_t i = 0; i < e.numel; ++i) {
    const Element x = element(e, a, i);
    const Element y = element(e, b, i);
    if (same(e, x, y)) continue;
    const uint64_t ulp = ulp_of(e, x, y);
    found.max_ulp = std::max(found.max_ulp, ulp);
    if (found.differing++ > 0) continue;
    show(i, x, y, ulp, &found);
  }
  if (present.run != present.golden) found.differing = e.numel;
  if (found.differing == 0 && present.run == present.golden) return std::nullopt;
  return found;
}

void damage_first_element(const StateEntry& entry, std::byte* state) {
  std::byte* first = state + entry.offset;
  const bool nan = is_floating(entry) && std::isnan(element(entry, first, 0).value);
  if (nan)
    first[entry.bytes / entry.numel - 1] ^= std::byte{0x40};  // of the exponent
  else
    first[0] ^= std::byte{1};
}

std::optional<BitDifference> first_bit_difference(const StateLayout& layout, const std::byte* run,
                                                  const std::byte* golden) {
  for (size_t i = 0; i < layout.entries.size(); ++i)
    if (auto found = bit_difference(layout, static_cast<int64_t>(i), run, golden)) return found;
  return std::nullopt;
}

DifferingCount count_differing(const StateLayout& layout, StateKind kind, const std::byte* run,
                               const std::byte* golden) {
  DifferingCount count;
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    if (layout.entries[i].kind != kind) continue;
    count.total += layout.entries[i].numel;
    if (auto found = bit_difference(layout, static_cast<int64_t>(i), run, golden))
      count.differing += found->differing;
  }
  return count;
}

Distance worst_distance(const StateLayout& layout, const std::byte* run, const std::byte* golden) {
  const Scales scales(layout, golden);
  Distance worst;
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const double absolute = absolute_distance(layout, index, run, golden);
    const double scale = scales.of(i);
    double relative = scale > 0 ? absolute / scale : absolute;
    if (!std::isfinite(absolute) || !std::isfinite(scales.norms[i])) relative = kInfinite;
    if (worst.entry < 0 || relative > worst.worst) {
      worst.worst = relative;
      worst.entry = index;
    }
    if (worst.first_beyond < 0 && !(relative <= kFloat64Bound)) worst.first_beyond = index;
  }
  return worst;
}

std::vector<double> element_bounds(const StateLayout& layout, const std::byte* golden) {
  const Scales scales(layout, golden);
  std::vector<double> bounds(layout.entries.size());
  for (size_t i = 0; i < bounds.size(); ++i) {
    const StateEntry& entry = layout.entries[i];
    if (entry.dtype != "float64" || entry.numel == 0) continue;
    const double scale = scales.of(i) > 0 ? scales.of(i) : 1;
    // A little less, so that the rounding of norms leaves none out.
    bounds[i] = 0.999 * kFloat64Bound * scale / std::sqrt(static_cast<double>(entry.numel));
  }
  return bounds;
}

bool is_beyond(double run, double golden, double bound) {
  return !std::isfinite(run) || !std::isfinite(golden) || !(std::abs(run - golden) <= bound);
}

std::optional<BitDifference> farthest_difference(const StateLayout& layout, int64_t index,
                                                 const std::byte* run, const std::byte* golden) {
  const StateEntry& entry = layout.entries.at(static_cast<size_t>(index));
  const Presence present = presence(layout, index, run, golden);
  if (entry.dtype != "float64" || present.run != present.golden)
    return bit_difference(layout, index, run, golden);
  const double bound = element_bounds(layout, golden)[static_cast<size_t>(index)];
  BitDifference found;
  found.entry = index;
  found.numel = entry.numel;
  double farthest = -1;
  for (int64_t i = 0; i < entry.numel; ++i) {
    const Element x = element(entry, run + entry.offset, i);
    const Element y = element(entry, golden + entry.offset, i);
    if (!is_beyond(x.value, y.value, bound)) continue;
    ++found.differing;
    const uint64_t ulp = ulp_of(entry, x, y);
    found.max_ulp = std::max(found.max_ulp, ulp);
    const double off = std::abs(x.value - y.value);
    if (std::isfinite(off) ? off <= farthest : farthest == kInfinite) continue;
    farthest = std::isfinite(off) ? off : kInfinite;
    show(i, x, y, ulp, &found);
  }
  if (found.differing == 0) return std::nullopt;
  return found;
}

double norm_of_kind(const StateLayout& layout, StateKind kind, const std::byte* state) {
  double sum = 0;
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    const StateEntry& entry = layout.entries[i];
    const bool there = state[layout.presence_offset + static_cast<int64_t>(i)] != std::byte{0};
    if (entry.kind != kind || !is_floating(entry) || !there) continue;
    for (int64_t j = 0; j < entry.numel; ++j) {
      const double value = element(entry, state + entry.offset, j).value;
      sum += value * value;
    }
  }
  return std::sqrt(sum);
}

bool all_close(const StateLayout& layout, StateKind kind, const std::byte* run,
               const std::byte* golden) {
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != kind) continue;
    const Tolerance tolerance = tolerance_of(entry);
    for (int64_t i = 0; i < entry.numel; ++i) {
      const double a = element(entry, run + entry.offset, i).value;
      const double b = element(entry, golden + entry.offset, i).value;
      if (a == b) continue;
      if (!(std::abs(a - b) <= tolerance.atol + tolerance.rtol * std::abs(b)) || std::isinf(b))
        return false;
    }
  }
  return true;
}

uint64_t ulp_distance(float a, float b) { return float_distance<uint32_t>(a, b); }
uint64_t ulp_distance(double a, double b) { return float_distance<uint64_t>(a, b); }

std::vector<int64_t> element_index(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  LOCKSTEP_CHECK(flat == 0, "an element beyond its tensor");
  return index;
}

}  // namespace lockstep
