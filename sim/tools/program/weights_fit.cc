#include "sim/tools/program/weights_fit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sim/tools/program/judge.h"

namespace lockstep {
namespace {

constexpr double kSingular = 1e-9;  // of a pivot beside the largest one: columns do not differ
constexpr int64_t kSmallCount = 1 << 12, kLargestCount = 1 << 16;
// A script may have added 1e-6 to a count. Of large counts nearly every number would be a share.
constexpr double kWholeNumber = 2e-6, kWholeOfLarge = 1e-7;

// Least squares by the normal equations, in Gauss's elimination; empty: they have no one solution.
std::vector<double> solve(const std::vector<WeightedRow>& rows, size_t unknowns) {
  std::vector<WeightedRow> a(unknowns, WeightedRow(unknowns + 1, 0.0));
  for (const WeightedRow& row : rows)
    for (size_t i = 0; i < unknowns; ++i)
      for (size_t j = 0; j <= unknowns; ++j) a[i][j] += row[i] * row[j];
  double largest = 0;
  for (size_t at = 0; at < unknowns; ++at) {
    const auto pivot = std::max_element(a.begin() + static_cast<std::ptrdiff_t>(at), a.end(),
                                        [&](const WeightedRow& one, const WeightedRow& two) {
                                          return std::abs(one[at]) < std::abs(two[at]);
                                        });
    std::swap(a[at], *pivot);
    largest = std::max(largest, std::abs(a[at][at]));
    if (std::abs(a[at][at]) <= kSingular * largest) return {};
    for (size_t row = 0; row < unknowns; ++row) {
      if (row == at) continue;
      const double factor = a[row][at] / a[at][at];
      for (size_t j = at; j <= unknowns; ++j) a[row][j] -= factor * a[at][j];
    }
  }
  std::vector<double> found;
  for (size_t i = 0; i < unknowns; ++i) found.push_back(a[i][unknowns] / a[i][i]);
  return found;
}

// Not those of zeros, of which any weight is right.
std::vector<size_t> columns_with_numbers(const std::vector<WeightedRow>& rows, size_t columns) {
  std::vector<size_t> found;
  for (size_t i = 0; i < columns; ++i)
    if (std::any_of(rows.begin(), rows.end(), [&](const WeightedRow& row) { return row[i] != 0; }))
      found.push_back(i);
  return found;
}

bool fits(const std::vector<WeightedRow>& rows, const std::vector<double>& weights) {
  double off = 0, norm = 0;
  for (const WeightedRow& row : rows) {
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * row[i];
    off += (sum - row.back()) * (sum - row.back());
    norm += row.back() * row.back();
  }
  return norm > 0 && std::sqrt(off / norm) < kProgramRatioBound;
}

}  // namespace

std::vector<double> fitted_weights(const std::vector<WeightedRow>& rows, size_t columns) {
  if (rows.size() < 2 * columns + 2) return {};
  const std::vector<size_t> there = columns_with_numbers(rows, columns);
  if (there.empty()) return {};
  std::vector<WeightedRow> picked;
  for (const WeightedRow& row : rows) {
    WeightedRow& some = picked.emplace_back();
    for (const size_t column : there) some.push_back(row[column]);
    some.push_back(row.back());
  }
  const std::vector<double> found = solve(picked, there.size());
  if (found.empty() || !fits(picked, found)) return {};
  std::vector<double> weights(columns, 0.0);
  for (size_t i = 0; i < there.size(); ++i) weights[there[i]] = found[i];
  return weights;
}

bool are_shares_of_a_count(const std::vector<double>& weights) {
  for (int64_t count = 1; count <= kLargestCount; ++count) {
    const double bound = count <= kSmallCount ? kWholeNumber : kWholeOfLarge;
    const auto is_share = [&](double weight) {
      const double part = weight * static_cast<double>(count);
      return std::abs(part - std::round(part)) < bound;
    };
    if (std::all_of(weights.begin(), weights.end(), is_share)) return true;
  }
  return false;
}

}  // namespace lockstep
