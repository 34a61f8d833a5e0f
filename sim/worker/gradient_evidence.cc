#include "sim/worker/gradient_evidence.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "scenarios/base/hash.h"

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

using Values = WrongGradients::Values;

constexpr size_t kFewest = 4;         // values that would not fit by accident
constexpr int64_t kMost = 1'000'000;  // that are sorted
constexpr double kFar = 1e-3;         // what has moved is not where it was, relative to its size

double length_of(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double gap_between(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

bool all_finite(const Values& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

Values all_gradients(const StateLayout& layout, const std::byte* state) {
  Values all;
  for (const StateEntry& entry : layout.entries)
    for (int64_t i = 0; entry.kind == StateKind::gradient && i < entry.numel; ++i)
      all.push_back(value_at(entry, state, i));
  return all;
}

bool holds(const Values& sorted, double value, double tolerance) {
  const auto place = std::lower_bound(sorted.begin(), sorted.end(), value - tolerance);
  return place != sorted.end() && *place <= value + tolerance;
}

size_t distinct(const Values& values) {
  return std::set<double>(values.begin(), values.end()).size();
}

// From here on a factor is measured, not fitted.
constexpr size_t kEnoughElements = 3;

// Is a = ratio x b over these elements, in the L2 norm?
bool scaled(const Values& a, double ratio, const Values& b, size_t begin, size_t end, double same) {
  double error = 0, size = 0;
  for (size_t i = begin; i < end; ++i) {
    const double d = a[i] - ratio * b[i];
    error += d * d;
    size += a[i] * a[i];
  }
  return std::isfinite(error) && error <= same * same * size;
}

// ... in each wrong gradient.
bool scaled(const WrongGradients& w, double ratio, const Values& b) {
  return !b.empty() && std::all_of(w.tensors.begin(), w.tensors.end(), [&](const auto& tensor) {
    return scaled(w.run, ratio, b, tensor.begin, tensor.end, w.same);
  });
}

// Of the gradient with the most wrong elements, which gives the steadiest.
double best_ratio(const WrongGradients& w, const Values& b) {
  const auto& largest = *std::max_element(
      w.tensors.begin(), w.tensors.end(),
      [](const auto& x, const auto& y) { return x.end - x.begin < y.end - y.begin; });
  double ab = 0, bb = 0;
  for (size_t i = largest.begin; i < largest.end; ++i) {
    ab += w.run[i] * b[i];
    bb += b[i] * b[i];
  }
  return bb > 0 ? ab / bb : 0;
}

void find_ratio(const WrongGradients& w, MismatchEvidence* evidence) {
  evidence->ratio = best_ratio(w, w.golden);
  // One element has a ratio as well: that of a part of a gradient says nothing, unless it is 0.
  if (w.wrong < w.elements && w.count() < kEnoughElements && evidence->ratio != 0) return;
  const double least = w.is_double() ? 1e-10 : 1e-3;
  evidence->one_ratio =
      std::abs(evidence->ratio - 1) > least && scaled(w, evidence->ratio, w.golden);
}

// The buckets that hold all wrong gradients; none where one lies in no bucket.
void find_buckets(const MismatchContext& c, const WrongGradients& w, MismatchEvidence* evidence) {
  std::set<int64_t> buckets;
  std::map<const StateEntry*, int64_t> wrong;
  for (const auto& tensor : w.tensors) {
    buckets.insert(c.bucket_of ? c.bucket_of(tensor.entry->parameter) : -1);
    wrong[tensor.entry] = tensor.wrong;
  }
  if (buckets.contains(-1)) return;
  evidence->buckets_wrong.assign(buckets.begin(), buckets.end());
  evidence->whole_buckets = true;
  for (const StateEntry& entry : c.layout->entries) {
    if (entry.kind != StateKind::gradient || !buckets.contains(c.bucket_of(entry.parameter)))
      continue;
    int64_t not_zero = 0;  // a zero is right by accident
    for (int64_t i = 0; i < entry.numel; ++i) not_zero += value_at(entry, c.golden, i) != 0;
    if (wrong[&entry] < not_zero) evidence->whole_buckets = false;
  }
}

// Is every element one rank's own, divided? So a bucket looks that was scattered without a sum.
bool single_contributions(const WrongGradients& w) {
  const auto ranks = static_cast<double>(w.shards.size());
  for (size_t i = 0; i < w.count(); ++i)
    if (std::none_of(w.shards.begin(), w.shards.end(), [&](const Values& shard) {
          return std::abs(w.run[i] - shard[i] / ranks) <= w.same * std::abs(w.run[i]);
        }))
      return false;
  return !w.shards.empty();
}

// Is run = golden + factor x part in all wrong elements together? A part that is hardly more than
// the rounding of sums explains nothing.
bool is_golden_and(const WrongGradients& w, double factor, const Values& part) {
  double error = 0;
  for (size_t i = 0; i < w.count(); ++i) {
    const double d = w.run[i] - w.golden[i] - factor * part[i];
    error += d * d;
  }
  const double size = std::abs(factor) * length_of(part);
  const double rounding = 16 * w.unit() * (length_of(w.golden) + length_of(part));
  return std::isfinite(error) && size > 100 * rounding &&
         std::sqrt(error) <= w.same * size + rounding;
}

// What the sum lacks is the same on all ranks. A part that is next to nothing explains nothing.
void find_missing_rank(const WrongGradients& w, MismatchEvidence* evidence) {
  const auto ranks = static_cast<double>(w.shards.size());
  constexpr double kSomething = 1e-2;
  for (size_t rank = 0; rank < w.shards.size(); ++rank)
    if (length_of(w.shards[rank]) > kSomething * ranks * length_of(w.golden) &&
        is_golden_and(w, -1 / ranks, w.shards[rank]))
      evidence->missing_rank = static_cast<int64_t>(rank);
}

// The factor by which run = golden + factor x own; 0: none.
double own_added(const WrongGradients& w) {
  if (w.count() < kEnoughElements) return 0;
  double more_own = 0, own_own = 0;
  for (size_t i = 0; i < w.count(); ++i) {
    more_own += (w.run[i] - w.golden[i]) * w.own[i];
    own_own += w.own[i] * w.own[i];
  }
  if (!(own_own > 0)) return 0;
  const double factor = more_own / own_own;
  return factor != 0 && is_golden_and(w, factor, w.own) ? factor : 0;
}

void compare_with_own(const MismatchContext& c, const WrongGradients& w,
                      MismatchEvidence* evidence) {
  if (w.own.empty() || c.world_size < 2) return;
  const double share = 1 / static_cast<double>(c.world_size);
  evidence->own_contribution = scaled(w, share, w.own);
  evidence->own_undivided = scaled(w, 1, w.own);
  evidence->own_added = own_added(w);
  evidence->own_misplaced = is_own_misplaced(w, c.world_size);
  if (w.count() < kEnoughElements || length_of(w.own) == 0) return;
  const double ratio = best_ratio(w, w.own);
  if (ratio != 0 && scaled(w, ratio, w.own)) evidence->own_ratio = ratio;
}

// Of a value: 1 for a power of two, 0 for zero and what is not finite. Of doubles the last bits are
// left out, which a division and a multiplication leave undecided.
int64_t significant_bits(double value, bool wide) {
  if (!std::isfinite(value) || value == 0) return 0;
  uint64_t mantissa = std::bit_cast<uint64_t>(value);
  if (wide) mantissa = (mantissa + 8) & ~uint64_t{15};
  mantissa &= (uint64_t{1} << 52) - 1;
  return mantissa == 0 ? 1 : 53 - std::countr_zero(mantissa);
}

// Of nine in ten values: a sum of rounded values has more where they are of very different sizes.
int64_t most_bits(const Values& values, double factor, bool wide) {
  std::vector<int64_t> bits;
  for (const double value : values) bits.push_back(significant_bits(value * factor, wide));
  std::sort(bits.begin(), bits.end());
  return bits[wide ? (bits.size() - 1) * 9 / 10 : bits.size() - 1];
}

// As casts to bfloat16 (8), float16 (11) and, of doubles, float32 (24) leave them; of doubles also
// sums of such values (a few more), divided or not.
int64_t fewer_bits(const MismatchContext& c, const WrongGradients& w) {
  for (const auto& tensor : w.tensors)
    if (tensor.entry->dtype == "bfloat16") return 0;
  const bool wide = w.is_double();
  const int64_t of_type = wide ? 49 : 24;
  const int64_t most = wide ? 40 : 11;
  int64_t run = most_bits(w.run, 1, wide);
  if (wide) run = std::min(run, most_bits(w.run, static_cast<double>(c.world_size), wide));
  const int64_t golden = most_bits(w.golden, 1, wide);
  const bool few_by_accident = w.count() < kEnoughElements && run > of_type / 2;
  return run > 0 && run <= most && golden > run && !few_by_accident ? run : 0;
}

// The last step's gradients once more.
bool is_of_step_before(const WrongGradients& w) {
  return !w.before.empty() && w.run == w.before && length_of(w.run) > 0;
}

// How far another order of addition can lead: of `ranks` addends, with a division before or after.
bool is_within_rounding(const WrongGradients& w) {
  if (w.shards.empty()) return false;
  const auto ranks = static_cast<double>(w.shards.size());
  for (size_t i = 0; i < w.count(); ++i) {
    double sizes = 0;
    for (const Values& shard : w.shards) sizes += std::abs(shard[i]);
    if (!(std::abs(w.run[i] - w.golden[i]) <= 2 * (ranks + 2) * w.unit() * sizes / ranks))
      return false;
  }
  return true;
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

bool is_misplaced(const MismatchContext& c, const WrongGradients& w) {
  int64_t total = 0;
  for (const StateEntry& entry : c.layout->entries)
    if (entry.kind == StateKind::gradient) total += entry.numel;
  if (w.sampled || total > kMost || !all_finite(w.run) || !all_finite(w.golden)) return false;
  if (distinct(w.run) < kFewest || !(gap_between(w.run, w.golden) > kFar * length_of(w.golden)))
    return false;
  Values sorted = all_gradients(*c.layout, c.golden);
  std::sort(sorted.begin(), sorted.end());
  // Small sums of large addends are no closer than these are.
  const double usual = length_of(w.golden) / std::sqrt(static_cast<double>(w.count()));
  const double close = w.is_double() ? 1e-12 : 0x1p-23;
  return std::all_of(w.run.begin(), w.run.end(), [&](double value) {
    return holds(sorted, value, close * (std::abs(value) + usual));
  });
}

bool is_own_misplaced(const WrongGradients& w, int64_t world_size) {
  if (w.sampled || w.own.empty() || !all_finite(w.run) || !all_finite(w.golden)) return false;
  Values added(w.count());  // what this rank must have added
  for (size_t i = 0; i < w.count(); ++i)
    added[i] = w.own[i] + static_cast<double>(world_size) * (w.run[i] - w.golden[i]);
  Values own = w.own;
  const double size = length_of(own);
  if (distinct(own) < kFewest || !(gap_between(added, own) > kFar * size)) return false;
  std::sort(added.begin(), added.end());
  std::sort(own.begin(), own.end());
  // Two large numbers of which little is left: their rounding stays.
  const double rounding = w.same * (size + static_cast<double>(world_size) * length_of(w.golden));
  return gap_between(added, own) <= rounding;
}

std::vector<double> sketch_of(const WrongGradients& wrong, const WrongGradients::Values& values) {
  if (values.empty() || values.size() < 2 * wrong.ranks) return {};
  std::vector<double> sketch(kSketchSize, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return {};
    const uint64_t signs = SplitMix64(i).next();
    for (size_t k = 0; k < kSketchSize; ++k)
      sketch[k] += (signs >> k & 1) != 0 ? values[i] : -values[i];
  }
  return sketch;
}

void describe_gradients(const MismatchContext& c, MismatchEvidence* evidence) {
  const WrongGradients w(c);
  evidence->gradients_total = w.gradients;
  evidence->gradients_wrong = static_cast<int64_t>(w.tensors.size());
  evidence->elements_wrong = w.wrong;
  evidence->elements_total = w.elements;
  if (w.tensors.empty()) return;
  find_buckets(c, w, evidence);
  if (w.count() == 0) return;  // absent on one side alone
  find_ratio(w, evidence);
  compare_with_own(c, w, evidence);
  find_missing_rank(w, evidence);
  evidence->significant_bits = fewer_bits(c, w);
  evidence->single_contributions = single_contributions(w);
  evidence->step_before = is_of_step_before(w);
  evidence->misplaced = is_misplaced(c, w);
  evidence->within_rounding = is_within_rounding(w);
  const std::byte* own = c.shards != nullptr ? c.shards + c.rank * c.shard_bytes : c.local;
  if (own == nullptr) return;
  evidence->own_norm = length_of(all_gradients(*c.layout, own));
  evidence->run_sketch = sketch_of(w, w.run);
  evidence->own_sketch = sketch_of(w, w.own);
}

}  // namespace lockstep
