#include "sim/worker/diagnose.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "sim/worker/update_evidence.h"

namespace lockstep {
namespace {

// Equal up to rounding, for hypotheses such as "run = 0.75 x golden": far above one rounding error
// of either width, far below any catalogued bug.
constexpr double kSameRelative = 1e-5;

double element(const StateEntry& entry, const std::byte* state, int64_t i) {
  if (entry.bytes == entry.numel * 8 && entry.dtype == "float64") {
    double value;
    std::memcpy(&value, state + entry.offset + i * 8, 8);
    return value;
  }
  if (entry.dtype == "bfloat16") {
    uint16_t bits;
    std::memcpy(&bits, state + entry.offset + i * 2, 2);
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
  if (entry.dtype != "float32") return 0;
  float value;
  std::memcpy(&value, state + entry.offset + i * 4, 4);
  return value;
}

// Is a = ratio x b for all elements, measured in the L2 norm?
bool scaled(const StateEntry& entry, const std::byte* a, double ratio, const std::byte* b) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < entry.numel; ++i) {
    const double x = element(entry, a, i);
    const double d = x - ratio * element(entry, b, i);
    error += d * d;
    size += x * x;
  }
  return std::isfinite(error) && error <= kSameRelative * kSameRelative * size;
}

double best_ratio(const StateEntry& entry, const std::byte* a, const std::byte* b) {
  double ab = 0, bb = 0;
  for (int64_t i = 0; i < entry.numel; ++i) {
    const double y = element(entry, b, i);
    ab += element(entry, a, i) * y;
    bb += y * y;
  }
  return bb > 0 ? ab / bb : 0;
}

bool differs(const StateEntry& entry, const std::byte* a, const std::byte* b) {
  return std::memcmp(a + entry.offset, b + entry.offset, static_cast<size_t>(entry.bytes)) != 0;
}

std::vector<const StateEntry*> gradients(const StateLayout& layout) {
  std::vector<const StateEntry*> found;
  for (const StateEntry& entry : layout.entries)
    if (entry.kind == StateKind::gradient) found.push_back(&entry);
  return found;
}

// It gives the steadiest ratio.
const StateEntry& largest_of(const std::vector<const StateEntry*>& entries) {
  return **std::max_element(entries.begin(), entries.end(),
                            [](auto* a, auto* b) { return a->numel < b->numel; });
}

void find_ratio(const MismatchContext& c, const std::vector<const StateEntry*>& wrong,
                MismatchEvidence* evidence) {
  evidence->ratio = best_ratio(largest_of(wrong), c.run, c.golden);
  evidence->one_ratio = std::abs(evidence->ratio - 1) > 1e-3 &&
                        std::all_of(wrong.begin(), wrong.end(), [&](auto* entry) {
                          return scaled(*entry, c.run, evidence->ratio, c.golden);
                        });
}

// Buckets all of whose gradients are wrong; none if a wrong gradient lies outside them.
std::vector<int64_t> wrong_buckets(const MismatchContext& c,
                                   const std::vector<const StateEntry*>& all) {
  std::map<int64_t, bool> wholly_wrong;
  for (const StateEntry* entry : all) {
    const int64_t bucket = c.bucket_of ? c.bucket_of(entry->parameter) : -1;
    auto [place, fresh] = wholly_wrong.try_emplace(bucket, true);
    place->second = place->second && differs(*entry, c.run, c.golden);
  }
  std::vector<int64_t> buckets;
  for (const StateEntry* entry : all) {
    if (!differs(*entry, c.run, c.golden)) continue;
    const int64_t bucket = c.bucket_of ? c.bucket_of(entry->parameter) : -1;
    if (bucket < 0 || !wholly_wrong[bucket]) return {};
    if (std::find(buckets.begin(), buckets.end(), bucket) == buckets.end())
      buckets.push_back(bucket);
  }
  std::sort(buckets.begin(), buckets.end());
  return buckets;
}

bool is_zero(const StateEntry& entry, const std::byte* state) {
  for (int64_t i = 0; i < entry.numel; ++i)
    if (element(entry, state, i) != 0) return false;
  return true;
}

bool same_values(const std::vector<const StateEntry*>& all, const std::byte* a,
                 const std::byte* b) {
  for (const StateEntry* entry : all)
    for (int64_t i = 0; i < entry->numel; ++i)
      if (!(element(*entry, a, i) == element(*entry, b, i))) return false;  // so that 0 == -0
  return true;
}

void find_shard(const MismatchContext& c, const std::vector<const StateEntry*>& all,
                MismatchEvidence* evidence) {
  if (c.local == nullptr || c.shards == nullptr) return;
  const auto shard = [&](int64_t rank) { return c.shards + rank * c.shard_bytes; };
  // Nothing: no hook has seen them.
  const bool seen =
      std::any_of(all.begin(), all.end(), [&](auto* entry) { return !is_zero(*entry, c.local); });
  evidence->local_known = seen;
  if (!seen) return;
  evidence->local_wrong = !same_values(all, c.local, shard(c.rank));
  if (!evidence->local_wrong) return;
  for (int64_t other = 0; other < c.world_size; ++other)
    if (other != c.rank && same_values(all, c.local, shard(other))) evidence->local_of_rank = other;
  const double ratio = best_ratio(largest_of(all), c.local, shard(c.rank));
  const bool one_factor = std::all_of(all.begin(), all.end(), [&](auto* entry) {
    return scaled(*entry, c.local, ratio, shard(c.rank));
  });
  if (one_factor && ratio != 0 && std::abs(ratio - 1) > 1e-3) evidence->local_ratio = ratio;
}

// Is every element one rank's own, divided? So a bucket looks that was scattered without a sum.
bool single_contributions(const MismatchContext& c, const StateEntry& entry) {
  const auto ranks = static_cast<double>(c.world_size);
  for (int64_t i = 0; i < entry.numel; ++i) {
    const double run = element(entry, c.run, i);
    bool found = false;
    for (int64_t rank = 0; rank < c.world_size && !found; ++rank) {
      const double own = element(entry, c.shards + rank * c.shard_bytes, i) / ranks;
      found = std::abs(run - own) <= kSameRelative * std::abs(run);
    }
    if (!found) return false;
  }
  return true;
}

// Is run = golden - part / world size for all these entries together? A part that is next to
// nothing explains nothing.
bool lacks(const MismatchContext& c, const std::vector<const StateEntry*>& wrong,
           const std::byte* part) {
  const double share = 1.0 / static_cast<double>(c.world_size);
  double error = 0, size = 0, whole = 0;
  for (const StateEntry* entry : wrong)
    for (int64_t i = 0; i < entry->numel; ++i) {
      const double lost = share * element(*entry, part, i);
      const double y = element(*entry, c.golden, i);
      const double d = y - element(*entry, c.run, i) - lost;
      error += d * d;
      size += lost * lost;
      whole += y * y;
    }
  constexpr double kSomething = 1e-2;
  return size > kSomething * kSomething * whole && error <= kSameRelative * kSameRelative * size;
}

void find_missing_rank(const MismatchContext& c, const std::vector<const StateEntry*>& wrong,
                       MismatchEvidence* evidence) {
  if (c.shards == nullptr || c.world_size < 2) return;
  for (int64_t rank = 0; rank < c.world_size; ++rank)
    if (lacks(c, wrong, c.shards + rank * c.shard_bytes)) evidence->missing_rank = rank;
}

int64_t few_flipped_bits(const MismatchContext& c, StateKind kind) {
  constexpr int64_t kFew = 8;
  int64_t flipped = 0;
  for (const StateEntry& entry : c.layout->entries) {
    if (entry.kind != kind) continue;
    for (int64_t i = 0; i < entry.bytes && flipped <= kFew; ++i)
      flipped += std::popcount(
          static_cast<unsigned>(c.run[entry.offset + i] ^ c.golden[entry.offset + i]));
  }
  return flipped <= kFew ? flipped : 0;
}

// Is run = golden + factor x own for all these entries together, by one factor? 0: no.
double own_added(const MismatchContext& c, const std::vector<const StateEntry*>& wrong) {
  const std::byte* own = c.shards + c.rank * c.shard_bytes;
  double more_own = 0, own_own = 0, more_more = 0;
  for (const StateEntry* entry : wrong)
    for (int64_t i = 0; i < entry->numel; ++i) {
      const double more = element(*entry, c.run, i) - element(*entry, c.golden, i);
      const double part = element(*entry, own, i);
      more_own += more * part;
      own_own += part * part;
      more_more += more * more;
    }
  if (!(own_own > 0) || !(more_more > 0)) return 0;
  const double factor = more_own / own_own;
  const double left = more_more - factor * more_own;  // squared distance from factor x own
  return factor > 0 && left <= kSameRelative * kSameRelative * more_more ? factor : 0;
}

// Of a value in the width of the gradients: 1 for a power of two, 0 for zero and what is not
// finite.
int64_t significant_bits(double value) {
  if (!std::isfinite(value) || value == 0) return 0;
  const uint64_t mantissa = std::bit_cast<uint64_t>(value) & ((uint64_t{1} << 52) - 1);
  return mantissa == 0 ? 1 : 53 - std::countr_zero(mantissa);
}

// As casts to bfloat16 (8) and float16 (11) leave them.
int64_t fewer_bits(const MismatchContext& c, const std::vector<const StateEntry*>& wrong) {
  int64_t run = 0, golden = 0;
  for (const StateEntry* entry : wrong) {
    if (entry->dtype == "bfloat16") return 0;
    for (int64_t i = 0; i < entry->numel; ++i) {
      run = std::max(run, significant_bits(element(*entry, c.run, i)));
      golden = std::max(golden, significant_bits(element(*entry, c.golden, i)));
    }
  }
  constexpr int64_t kOfHalf = 11;
  return run <= kOfHalf && golden > run ? run : 0;
}

void describe_gradients(const MismatchContext& c, MismatchEvidence* evidence) {
  const auto all = gradients(*c.layout);
  std::vector<const StateEntry*> wrong;
  for (const StateEntry* entry : all)
    if (differs(*entry, c.run, c.golden)) wrong.push_back(entry);
  evidence->gradients_total = static_cast<int64_t>(all.size());
  evidence->gradients_wrong = static_cast<int64_t>(wrong.size());
  if (wrong.empty()) return;
  find_ratio(c, wrong, evidence);
  evidence->buckets_wrong = wrong_buckets(c, all);
  const std::byte* own = c.shards != nullptr ? c.shards + c.rank * c.shard_bytes : c.local;
  const auto is_own = [&](double share) {
    return own != nullptr && std::all_of(wrong.begin(), wrong.end(), [&](auto* entry) {
             return scaled(*entry, c.run, share, own);
           });
  };
  evidence->own_contribution = is_own(1.0 / static_cast<double>(c.world_size));
  evidence->own_undivided = c.world_size > 1 && is_own(1);
  find_missing_rank(c, wrong, evidence);
  if (c.shards != nullptr && c.world_size > 1) evidence->own_added = own_added(c, wrong);
  evidence->significant_bits = fewer_bits(c, wrong);
  if (c.shards != nullptr)
    evidence->single_contributions = std::all_of(
        wrong.begin(), wrong.end(), [&](auto* entry) { return single_contributions(c, *entry); });
  find_shard(c, all, evidence);
}

}  // namespace

MismatchEvidence diagnose(const MismatchContext& c, const BitDifference& difference) {
  const StateEntry& entry = c.layout->entries[static_cast<size_t>(difference.entry)];
  const int64_t width = entry.numel > 0 ? entry.bytes / entry.numel : 4;
  MismatchEvidence evidence;
  evidence.lane = c.lane;
  evidence.step = c.step;
  evidence.state_kind = to_word(entry.kind);
  evidence.tensor = entry.name;
  evidence.bucket = c.bucket_of && entry.parameter >= 0 ? c.bucket_of(entry.parameter) : -1;
  evidence.element = c.shape_of ? element_index(difference.element, c.shape_of(difference.entry))
                                : std::vector<int64_t>{difference.element};
  evidence.run_value = difference.run_value;
  evidence.golden_value = difference.golden_value;
  evidence.run_bits = bits_text(difference.run_bits, width);
  evidence.golden_bits = bits_text(difference.golden_bits, width);
  evidence.ulp = difference.ulp;
  evidence.max_ulp = difference.max_ulp;
  evidence.differing = difference.differing;
  evidence.numel = difference.numel;
  evidence.bits_flipped = few_flipped_bits(c, entry.kind);
  if (difference.run_absent != difference.golden_absent)
    evidence.present_in = difference.run_absent ? "golden" : "run";
  if (c.step > 0) describe_gradients(c, &evidence);
  if (c.step > 0) describe_update(c, &evidence);
  return evidence;
}

}  // namespace lockstep
