#include "sim/worker/diagnose.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "sim/worker/gradient_evidence.h"
#include "sim/worker/update_evidence.h"
#include "sim/worker/wrong_gradients.h"

namespace lockstep {
namespace {

using Entries = std::vector<const StateEntry*>;

bool same_values(const Entries& all, const std::byte* a, const std::byte* b) {
  for (const StateEntry* entry : all)
    for (int64_t i = 0; i < entry->numel; ++i)
      if (!(value_at(*entry, a, i) == value_at(*entry, b, i))) return false;  // so that 0 == -0
  return true;
}

bool is_zero(const Entries& all, const std::byte* state) {
  for (const StateEntry* entry : all)
    for (int64_t i = 0; i < entry->numel; ++i)
      if (value_at(*entry, state, i) != 0) return false;
  return true;
}

// The factor by which all of a are b's, each in the L2 norm; 0: none.
double factor_between(const Entries& all, const std::byte* a, const std::byte* b) {
  constexpr double kSame = 1e-5;
  const auto sums = [&](const StateEntry& entry) {
    struct {
      double aa = 0, ab = 0, bb = 0;
    } sum;
    for (int64_t i = 0; i < entry.numel; ++i) {
      const double x = value_at(entry, a, i), y = value_at(entry, b, i);
      sum.aa += x * x, sum.ab += x * y, sum.bb += y * y;
    }
    return sum;
  };
  const auto largest = sums(**std::max_element(
      all.begin(), all.end(), [](auto* x, auto* y) { return x->numel < y->numel; }));
  if (!(largest.bb > 0)) return 0;
  const double ratio = largest.ab / largest.bb;
  for (const StateEntry* entry : all) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < entry->numel; ++i) {
      const double x = value_at(*entry, a, i), d = x - ratio * value_at(*entry, b, i);
      error += d * d, size += x * x;
    }
    if (!(error <= kSame * kSame * size)) return 0;
  }
  return std::abs(ratio - 1) > 1e-3 ? ratio : 0;
}

// Bits of these entries that differ, if they are few; else 0.
int64_t few_bits(const Entries& entries, const std::byte* a, const std::byte* b) {
  constexpr int64_t kFew = 8;
  int64_t flipped = 0;
  for (const StateEntry* entry : entries)
    for (int64_t i = entry->offset; i < entry->offset + entry->bytes && flipped <= kFew; ++i)
      flipped += std::popcount(static_cast<unsigned>(a[i] ^ b[i]));
  return flipped <= kFew ? flipped : 0;
}

Entries entries_of(const StateLayout& layout, StateKind kind) {
  Entries found;
  for (const StateEntry& entry : layout.entries)
    if (entry.kind == kind) found.push_back(&entry);
  return found;
}

// This rank's gradients before the reduction, beside the golden run's for each rank.
void find_shard(const MismatchContext& c, MismatchEvidence* evidence) {
  const Entries all = entries_of(*c.layout, StateKind::gradient);
  if (c.local == nullptr || c.shards == nullptr || evidence->gradients_wrong == 0) return;
  const auto shard = [&](int64_t rank) { return c.shards + rank * c.shard_bytes; };
  evidence->local_known = !is_zero(all, c.local);  // else no hook has seen them
  if (!evidence->local_known) return;
  evidence->local_wrong = !same_values(all, c.local, shard(c.rank));
  if (!evidence->local_wrong) return;
  for (int64_t other = 0; other < c.world_size; ++other)
    if (other != c.rank && same_values(all, c.local, shard(other))) evidence->local_of_rank = other;
  evidence->local_ratio = factor_between(all, c.local, shard(c.rank));
  evidence->local_bits_flipped = few_bits(all, c.local, shard(c.rank));
}

int64_t count_not_finite(const Entries& entries, const std::byte* state) {
  int64_t found = 0;
  for (const StateEntry* entry : entries)
    for (int64_t i = 0; i < entry->numel; ++i) found += !std::isfinite(value_at(*entry, state, i));
  return found;
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
  const Entries alike = entries_of(*c.layout, entry.kind);
  evidence.bits_flipped = few_bits(alike, c.run, c.golden);
  evidence.not_finite = count_not_finite(alike, c.run);
  evidence.golden_not_finite = count_not_finite(alike, c.golden);
  if (difference.run_absent != difference.golden_absent)
    evidence.present_in = difference.run_absent ? "golden" : "run";
  if (c.step == 0) return evidence;
  describe_gradients(c, &evidence);
  find_shard(c, &evidence);
  describe_update(c, &evidence);
  return evidence;
}

}  // namespace lockstep
