#include "sim/worker/misplaced.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep {
namespace {

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

}  // namespace

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

}  // namespace lockstep
