#include "sim/calibrate/backward_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "scenarios/base/hash.h"
#include "sim/analysis/step_model.h"

namespace lockstep {

FittedNumber interval_of(double value, std::vector<double> drawn) {
  std::sort(drawn.begin(), drawn.end());
  const auto last = static_cast<double>(drawn.size() - 1);
  return {value, drawn[static_cast<size_t>(last * 0.025)],
          drawn[static_cast<size_t>(last * 0.975)]};
}

size_t resampled_place(int round, size_t index, size_t of) {
  return substream_seed(static_cast<uint64_t>(round), "calibrate", index) % of;
}

namespace {

using Rows = std::vector<std::vector<double>>;

// Columns of length 1, so that what cannot be told apart shows whatever its units.
std::vector<double> lengths_of(const Rows& rows) {
  std::vector<double> lengths(rows.front().size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) lengths[i] += row[i] * row[i];
  for (double& length : lengths) length = std::sqrt(length);
  return lengths;
}

// Gauss-Jordan on the normal equations; pivots are at most 1, and 0 for a column that the others
// make up.
std::optional<std::vector<double>> solved(Rows a, std::vector<double> b) {
  constexpr double kTold = 1e-6;
  for (size_t i = 0; i < b.size(); ++i) {
    size_t pivot = i;
    for (size_t r = i; r < b.size(); ++r)
      if (std::fabs(a[r][i]) > std::fabs(a[pivot][i])) pivot = r;
    if (std::fabs(a[pivot][i]) < kTold) return std::nullopt;
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    for (size_t r = 0; r < b.size(); ++r) {
      if (r == i) continue;
      const double factor = a[r][i] / a[i][i];
      for (size_t c = 0; c < b.size(); ++c) a[r][c] -= factor * a[i][c];
      b[r] -= factor * b[i];
    }
  }
  for (size_t i = 0; i < b.size(); ++i) b[i] /= a[i][i];
  return b;
}

}  // namespace

std::optional<std::vector<double>> least_squares(const Rows& rows, const std::vector<double>& y) {
  if (rows.empty() || rows.size() < rows.front().size()) return std::nullopt;
  const std::vector<double> lengths = lengths_of(rows);
  const size_t n = lengths.size();
  if (*std::min_element(lengths.begin(), lengths.end()) <= 0) return std::nullopt;
  Rows a(n, std::vector<double>(n));
  std::vector<double> b(n);
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < n; ++i) {
      b[i] += rows[r][i] * y[r] / lengths[i];
      for (size_t j = 0; j < n; ++j) a[i][j] += rows[r][i] * rows[r][j] / lengths[i] / lengths[j];
    }
  auto x = solved(std::move(a), std::move(b));
  for (size_t i = 0; x && i < n; ++i) (*x)[i] /= lengths[i];
  return x;
}

namespace {

// All backwards of one compute and one number of buckets.
using Cells = std::map<std::pair<std::string, int64_t>, std::vector<BackwardSample>>;

struct Medians {
  std::string compute;
  double buckets = 0, ns = 0, overlapped_ns = 0;
};

// round < 0: of all samples as they are.
std::vector<Medians> medians_of(const Cells& cells, int round) {
  std::vector<Medians> medians;
  size_t index = 0;
  for (const auto& [key, samples] : cells) {
    std::vector<double> ns, overlapped_ns;
    for (size_t i = 0; i < samples.size(); ++i) {
      const size_t place = round < 0 ? i : resampled_place(round, index++, samples.size());
      ns.push_back(samples[place].ns);
      overlapped_ns.push_back(samples[place].overlapped_ns);
    }
    medians.push_back(
        {key.first, static_cast<double>(key.second), median_of(ns), median_of(overlapped_ns)});
  }
  return medians;
}

// Less their mean among those of the same compute, so that its base is gone.
void subtract_means(double Medians::*number, std::vector<Medians>* medians) {
  std::map<std::string, std::pair<double, double>> sums;
  for (const Medians& one : *medians) {
    sums[one.compute].first += one.*number;
    sums[one.compute].second += 1;
  }
  for (Medians& one : *medians) one.*number -= sums[one.compute].first / sums[one.compute].second;
}

// ns a bucket, and the part of the overlapped time that is lost.
std::optional<std::vector<double>> fitted(std::vector<Medians> medians, bool overlapped) {
  for (const auto number : {&Medians::buckets, &Medians::ns, &Medians::overlapped_ns})
    subtract_means(number, &medians);
  Rows rows;
  std::vector<double> y;
  for (const Medians& one : medians) {
    rows.push_back({one.buckets});
    if (overlapped) rows.back().push_back(one.overlapped_ns);
    y.push_back(one.ns);
  }
  return least_squares(rows, y);
}

// Each number with its interval; nothing where the samples do not tell the numbers apart.
std::optional<std::vector<FittedNumber>> with_intervals(const Cells& cells, bool overlapped) {
  const auto values = fitted(medians_of(cells, -1), overlapped);
  if (!values) return std::nullopt;
  Rows drawn(values->size());
  for (int round = 0; round < kResamplings; ++round)
    if (const auto one = fitted(medians_of(cells, round), overlapped))
      for (size_t i = 0; i < one->size(); ++i) drawn[i].push_back((*one)[i]);
  if (drawn.front().empty()) return std::nullopt;
  std::vector<FittedNumber> numbers;
  for (size_t i = 0; i < values->size(); ++i)
    numbers.push_back(interval_of((*values)[i], drawn[i]));
  return numbers;
}

// Layouts beyond the first of each compute: what differs by its buckets alone.
size_t contrasts(const Cells& cells) {
  std::set<std::string> computes;
  for (const auto& cell : cells) computes.insert(cell.first.first);
  return cells.size() - computes.size();
}

constexpr double kMostLost = 16.0 / 17;  // a slowdown of 16, the most that a machine may have

double slowdown_of(double lost) {
  const double part = std::clamp(lost, 0.0, kMostLost);
  return part / (1 - part);
}

MaybeFitted told_from_0(const FittedNumber& number, const char* unit) {
  if (number.low > 0) return {number, ""};
  return {std::nullopt, fmt::format("the runs do not tell it from 0 ({:.3g} .. {:.3g}{})",
                                    number.low, number.high, unit)};
}

FittedNumber in_us(const FittedNumber& ns) {
  return {ns.value * 1e-3, ns.low * 1e-3, ns.high * 1e-3};
}

}  // namespace

BackwardCosts backward_costs(const std::vector<BackwardSample>& samples) {
  Cells cells;
  for (const BackwardSample& sample : samples)
    cells[{sample.compute, sample.buckets}].push_back(sample);
  if (cells.empty()) {
    const MaybeFitted unknown{std::nullopt,
                              "no run has real compute of one pass a step, without faults"};
    return {unknown, unknown};
  }
  if (contrasts(cells) < 1) {
    const MaybeFitted unknown{
        std::nullopt, "all runs of a model have equally many buckets: it takes several caps"};
    return {unknown, unknown};
  }
  BackwardCosts costs;
  costs.overlap_slowdown.unknown = "it takes runs of four numbers of buckets at least";
  // One contrast more than there are numbers, else noise alone would explain them.
  if (const auto both = contrasts(cells) >= 3 ? with_intervals(cells, true) : std::nullopt) {
    const FittedNumber lost = (*both)[1];
    costs.overlap_slowdown =
        told_from_0({slowdown_of(lost.value), lost.low > 0 ? slowdown_of(lost.low) : lost.low,
                     slowdown_of(lost.high)},
                    "");
    costs.bucket_us = told_from_0(in_us((*both)[0]), " us");
    if (costs.overlap_slowdown.number) return costs;
  }
  if (const auto one = with_intervals(cells, false))
    costs.bucket_us = told_from_0(in_us((*one)[0]), " us");
  return costs;
}

double bare_backward_ns(const BackwardSample& sample, const BackwardCosts& costs) {
  double ns = sample.ns;
  if (const auto& bucket = costs.bucket_us.number)
    ns -= bucket->value * 1e3 * static_cast<double>(sample.buckets);
  if (const auto& slow = costs.overlap_slowdown.number)
    ns -= slow->value / (1 + slow->value) * sample.overlapped_ns;
  return std::max(ns, 0.0);
}

}  // namespace lockstep
