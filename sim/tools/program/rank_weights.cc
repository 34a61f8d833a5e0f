#include "sim/tools/program/rank_weights.h"

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge.h"

namespace lockstep {
namespace {

constexpr size_t kProjections = 4;  // of a sketch, before its norm
constexpr double kSingular = 1e-9;  // of a pivot beside the largest one: ranks do not differ
constexpr double kAlikeWeights = 1e-6;

using Row = std::vector<double>;  // of each rank, then of one device

const Sketch* gradient_of(const DrillRank& rank, const std::string& name) {
  for (const DrillParameter& one : rank.parameters)
    if (one.name == name && one.gradient) return &one.gradient;
  return nullptr;
}

std::vector<Row> equations(const std::vector<DrillRank>& ranks, const DrillRank& one) {
  std::vector<Row> rows;
  for (const DrillParameter& parameter : one.parameters) {
    std::vector<const Sketch*> all;
    for (const DrillRank& rank : ranks) all.push_back(gradient_of(rank, parameter.name));
    all.push_back(gradient_of(one, parameter.name));
    if (std::find(all.begin(), all.end(), nullptr) != all.end()) continue;
    for (size_t i = 0; i < kProjections; ++i) {
      Row& row = rows.emplace_back();
      for (const Sketch* gradient : all) row.push_back((**gradient)[i]);
    }
  }
  return rows;
}

// Least squares by the normal equations, in Gauss's elimination; empty: they have no one solution.
std::vector<double> solve(const std::vector<Row>& rows, size_t unknowns) {
  std::vector<Row> a(unknowns, Row(unknowns + 1, 0.0));
  for (const Row& row : rows)
    for (size_t i = 0; i < unknowns; ++i)
      for (size_t j = 0; j <= unknowns; ++j) a[i][j] += row[i] * row[j];
  double largest = 0;
  for (size_t at = 0; at < unknowns; ++at) {
    const auto pivot = std::max_element(
        a.begin() + static_cast<std::ptrdiff_t>(at), a.end(),
        [&](const Row& one, const Row& two) { return std::abs(one[at]) < std::abs(two[at]); });
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

bool fits(const std::vector<Row>& rows, const std::vector<double>& weights) {
  double off = 0, norm = 0;
  for (const Row& row : rows) {
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * row[i];
    off += (sum - row.back()) * (sum - row.back());
    norm += row.back() * row.back();
  }
  return norm > 0 && std::sqrt(off / norm) < kProgramRatioBound;
}

}  // namespace

std::optional<std::vector<double>> rank_weights(const std::vector<DrillRank>& ranks,
                                                const DrillRank& one) {
  const std::vector<Row> rows = equations(ranks, one);
  if (rows.size() < 2 * ranks.size() + 2) return std::nullopt;
  std::vector<double> weights = solve(rows, ranks.size());
  if (weights.empty() || !fits(rows, weights)) return std::nullopt;
  double sum = 0;
  for (const double weight : weights) sum += weight;
  if (std::abs(sum - 1) > kAlikeWeights) return std::nullopt;
  const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
  if (*least < -kAlikeWeights || *most - *least < kAlikeWeights) return std::nullopt;
  return weights;
}

}  // namespace lockstep
