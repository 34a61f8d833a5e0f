#include "sim/worker/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "sim/worker/gradient_evidence.h"

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

void write_file(const std::string& path, const char* data, size_t bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(data, static_cast<std::streamsize>(bytes));
  file.flush();
  if (!file) fmt::print(stderr, "could not write {}\n", path);
}

using Values = std::vector<double>;

Values values_of(const StateEntry& entry, const std::byte* state) {
  Values values;
  for (int64_t i = 0; i < entry.numel; ++i) values.push_back(value_at(entry, state, i));
  return values;
}

bool update_differs(const MismatchContext& c, StateKind kind) {
  return std::any_of(c.layout->entries.begin(), c.layout->entries.end(),
                     [&](const StateEntry& e) { return e.kind == kind && is_wrong(c, e); });
}

// All gradients of a state behind each other.
Values gradients_before(const StateLayout& layout, const std::byte* state) {
  Values all;
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != StateKind::gradient) continue;
    const Values values = values_of(entry, state);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

double distance(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}
double norm(const Values& a) { return distance(a, Values(a.size())); }

// Of gradients: far above what rounding does to them, below what clipping does.
double clipping_tolerance(const StateLayout& layout) {
  const bool brain = std::any_of(
      layout.entries.begin(), layout.entries.end(),
      [](const StateEntry& e) { return e.kind == StateKind::gradient && e.dtype == "bfloat16"; });
  return brain ? 1.6e-2 : 1e-5;
}

void clip(const Part& clipping, Values* gradients) {
  const bool by_value = clipping.kind == "value";
  const double most = clipping.options.number(by_value ? "max_value" : "max_norm");
  if (by_value) {
    for (double& value : *gradients) value = std::clamp(value, -most, most);
    return;
  }
  double size = norm(*gradients);
  if (clipping.options.text("norm_type") == "inf") {
    size = 0;
    for (double value : *gradients) size = std::max(size, std::abs(value));
  }
  const double factor = std::min(1.0, most / (size + 1e-6));
  for (double& value : *gradients) value *= factor;
}

// Is the run what comes out where each rank clips by itself, or nobody does?
void find_clipping(const MismatchContext& c, MismatchEvidence* evidence) {
  if (c.clipping == nullptr || c.clipping->kind == "none" || c.shards == nullptr) return;
  const Values run = gradients_before(*c.layout, c.run);
  const auto same_as_run = [&, tolerance = clipping_tolerance(*c.layout)](const Values& other) {
    return distance(run, other) <= tolerance * norm(other);
  };
  if (same_as_run(gradients_before(*c.layout, c.golden))) return;
  Values clipped(run.size()), whole(run.size());
  for (int64_t rank = 0; rank < c.world_size; ++rank) {
    Values local = gradients_before(*c.layout, c.shards + rank * c.shard_bytes);
    const auto share = 1 / static_cast<double>(c.world_size);
    for (size_t i = 0; i < local.size(); ++i) whole[i] += local[i] * share;
    clip(*c.clipping, &local);
    for (size_t i = 0; i < local.size(); ++i) clipped[i] += local[i] * share;
  }
  if (same_as_run(whole))
    evidence->clipping = "absent";
  else if (same_as_run(clipped))
    evidence->clipping = "before_sum";
}

void find_skipped(const MismatchContext& c, MismatchEvidence* evidence) {
  for (const StateEntry& entry : c.layout->entries) {
    if (!entry.name.ends_with(".skipped_steps") || entry.dtype != "int64") continue;
    std::memcpy(&evidence->skipped_run, c.run + entry.offset, 8);
    std::memcpy(&evidence->skipped_golden, c.golden + entry.offset, 8);
  }
}

// Where gradients and optimizer state agree and only weights differ: is the change of all of them
// one number times the golden run's? Rounding of the weights bounds how well that can be told.
void find_update_ratio(const MismatchContext& c, MismatchEvidence* evidence) {
  if (c.before == nullptr || update_differs(c, StateKind::gradient) ||
      update_differs(c, StateKind::optimizer_state) || !update_differs(c, StateKind::parameter))
    return;
  Values run, golden, noise;
  for (const StateEntry& entry : c.layout->entries) {
    if (entry.kind != StateKind::parameter || !is_wrong(c, entry)) continue;
    const double unit = entry.dtype == "float64"    ? std::numeric_limits<double>::epsilon()
                        : entry.dtype == "bfloat16" ? 0x1p-7
                                                    : std::numeric_limits<float>::epsilon();
    const Values before = values_of(entry, c.before);
    const Values after = values_of(entry, c.run);
    const Values wanted = values_of(entry, c.golden);
    for (size_t i = 0; i < before.size(); ++i) {
      run.push_back(after[i] - before[i]);
      golden.push_back(wanted[i] - before[i]);
      noise.push_back(8 * unit *
                      std::max({std::abs(before[i]), std::abs(after[i]), std::abs(wanted[i])}));
    }
  }
  double both = 0, square = 0;
  for (size_t i = 0; i < run.size(); ++i)
    both += run[i] * golden[i], square += golden[i] * golden[i];
  if (!(square > 0) || !(distance(run, golden) > 10 * norm(noise))) return;
  const double ratio = both / square;
  for (size_t i = 0; i < run.size(); ++i)
    if (!(std::abs(run[i] - ratio * golden[i]) <=
          1e-4 * std::abs(run[i]) + (1 + std::abs(ratio)) * noise[i]))
      return;
  evidence->update_known = true;
  evidence->update_ratio = ratio;
}

// Is every element that is not the golden run's that of the step before?
bool kept_elements(const MismatchContext& c, const StateEntry& entry) {
  const auto width = static_cast<size_t>(entry.bytes / entry.numel);
  for (int64_t i = 0; i < entry.numel; ++i) {
    const int64_t place = entry.offset + i * static_cast<int64_t>(width);
    if (is_wrong(c, entry, i) && std::memcmp(c.run + place, c.before + place, width) != 0)
      return false;
  }
  return true;
}

// Weights that should have changed and did not, though no gradient says so.
void find_kept_weights(const MismatchContext& c, MismatchEvidence* evidence) {
  if (c.before == nullptr || update_differs(c, StateKind::gradient)) return;
  for (const StateEntry& entry : c.layout->entries) {
    if (entry.kind != StateKind::parameter) continue;
    if (is_wrong(c, entry) && kept_elements(c, entry)) evidence->weights_kept.push_back(entry.name);
    evidence->weights_moved =
        evidence->weights_moved || std::memcmp(c.run + entry.offset, c.before + entry.offset,
                                               static_cast<size_t>(entry.bytes)) != 0;
  }
}

}  // namespace

MismatchEvidence diagnose(const MismatchContext& c, const BitDifference& difference) {
  const StateEntry& entry = c.layout->entries[static_cast<size_t>(difference.entry)];
  const int64_t width = entry.numel > 0 ? entry.bytes / entry.numel : 4;
  MismatchEvidence evidence;
  evidence.lane = c.lane;
  evidence.step = c.step;
  evidence.state_kind = entry.kind;
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

void write_evidence(const std::string& path, const Evidence& evidence) {
  if (path.empty()) return;
  const std::string text = to_json_text(evidence);
  const std::string unfinished = path + ".new";
  write_file(unfinished, text.data(), text.size());
  if (std::rename(unfinished.c_str(), path.c_str()) != 0)
    fmt::print(stderr, "could not write {}\n", path);
}

void dump_states(const std::string& prefix, const MismatchContext& context) {
  if (prefix.empty()) return;
  const std::string base =
      fmt::format("{}.{}.step-{}", prefix, to_word(context.lane), context.step);
  const auto bytes = static_cast<size_t>(context.layout->bytes);
  write_file(base + ".run", reinterpret_cast<const char*>(context.run), bytes);
  write_file(base + ".golden", reinterpret_cast<const char*>(context.golden), bytes);
  std::string index = "kind name dtype numel offset\n";
  for (const StateEntry& entry : context.layout->entries)
    index += fmt::format("{} {} {} {} {}\n", to_word(entry.kind), entry.name, entry.dtype,
                         entry.numel, entry.offset);
  write_file(base + ".index.txt", index.data(), index.size());
}

void describe_update(const MismatchContext& c, MismatchEvidence* evidence) {
  find_skipped(c, evidence);
  find_clipping(c, evidence);
  find_update_ratio(c, evidence);
  find_kept_weights(c, evidence);
}

}  // namespace lockstep
