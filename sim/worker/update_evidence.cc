#include "sim/worker/update_evidence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "sim/worker/wrong_gradients.h"

namespace lockstep {
namespace {

using Values = std::vector<double>;

Values values_of(const StateEntry& entry, const std::byte* state) {
  Values values(static_cast<size_t>(entry.numel));
  const std::byte* place = state + entry.offset;
  for (size_t i = 0; i < values.size(); ++i) {
    if (entry.dtype == "float64") {
      std::memcpy(&values[i], place + i * 8, 8);
    } else if (entry.dtype == "float32") {
      float value;
      std::memcpy(&value, place + i * 4, 4);
      values[i] = value;
    }
  }
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

// Far above rounding of float32, far below what clipping does.
bool same(const Values& a, const Values& b) { return distance(a, b) <= 1e-5 * norm(b); }

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
  if (same(run, gradients_before(*c.layout, c.golden))) return;
  Values clipped(run.size()), whole(run.size());
  for (int64_t rank = 0; rank < c.world_size; ++rank) {
    Values local = gradients_before(*c.layout, c.shards + rank * c.shard_bytes);
    const auto share = 1 / static_cast<double>(c.world_size);
    for (size_t i = 0; i < local.size(); ++i) whole[i] += local[i] * share;
    clip(*c.clipping, &local);
    for (size_t i = 0; i < local.size(); ++i) clipped[i] += local[i] * share;
  }
  if (same(run, whole))
    evidence->clipping = "absent";
  else if (same(run, clipped))
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
    const double unit = entry.dtype == "float64" ? std::numeric_limits<double>::epsilon()
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

void describe_update(const MismatchContext& c, MismatchEvidence* evidence) {
  find_skipped(c, evidence);
  find_clipping(c, evidence);
  find_update_ratio(c, evidence);
  find_kept_weights(c, evidence);
}

}  // namespace lockstep
