#include "sim/tools/program/drill_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/tools/program/judge.h"

namespace lockstep {
namespace {

using DrillRow = std::array<double, 2>;

// What was found beside what was expected.
class Moments {
 public:
  void add(double found, double expected) {
    found_ += found * found;
    both_ += found * expected;
    expected_ += expected * expected;
    off_ += (found - expected) * (found - expected);
  }
  // Each of two projections of a row has the square of its norm as its mean.
  DrillFit fit(double floor) const {
    DrillFit made;
    const double norm = std::sqrt(std::max(found_, expected_) / 2);
    made.distance = std::sqrt(off_ / 2) / std::max({norm, floor, 1e-300});
    if (expected_ <= 0) return made;
    const double ratio = both_ / expected_;
    const double rest = found_ - 2 * ratio * both_ + ratio * ratio * expected_;
    if (std::sqrt(std::max(rest, 0.0) / expected_) < kProgramRatioBound) made.ratio = ratio;
    return made;
  }

 private:
  double found_ = 0, both_ = 0, expected_ = 0, off_ = 0;
};

bool same_but(const std::vector<int64_t>& a, const std::vector<int64_t>& b, size_t dimension) {
  if (a.size() != b.size() || dimension >= a.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (i != dimension && a[i] != b[i]) return false;
  return true;
}

bool all_same_but(const DrillTensors& ranks, const DrillTensor& one, size_t dimension) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const DrillTensor* rank) {
    return same_but(rank->shape, one.shape, dimension);
  });
}

bool same_shape(const DrillTensors& ranks, const DrillTensor& one) {
  return one.rows && std::all_of(ranks.begin(), ranks.end(), [&](const DrillTensor* rank) {
           return rank->rows && rank->shape == one.shape;
         });
}

void append(const std::vector<double>& prints, double factor, std::vector<DrillRow>* rows) {
  for (size_t i = 0; i + 1 < prints.size(); i += 2)
    rows->push_back({factor * prints[i], factor * prints[i + 1]});
}

// In an order of their own, so that equal ones meet: two rows with the same projection on a random
// direction are the same.
std::optional<DrillFit> fit_sorted(std::vector<DrillRow> found, std::vector<DrillRow> expected,
                                   double floor) {
  if (found.size() != expected.size()) return std::nullopt;
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  Moments moments;
  for (size_t i = 0; i < found.size(); ++i)
    for (size_t k = 0; k < 2; ++k) moments.add(found[i][k], expected[i][k]);
  return moments.fit(floor);
}

std::optional<DrillFit> fit_along(const DrillTensors& ranks, const DrillTensor& one,
                                  RowPrints DrillTensor::*prints, double factor, double floor) {
  std::vector<DrillRow> found, expected;
  if (!(one.*prints)) return std::nullopt;
  append(*(one.*prints), factor, &expected);
  for (const DrillTensor* rank : ranks) {
    if (!(rank->*prints)) return std::nullopt;
    append(*(rank->*prints), 1, &found);
  }
  return fit_sorted(std::move(found), std::move(expected), floor);
}

double norms_apart(const ElementNorms& found, const ElementNorms& one, double factor,
                   double floor) {
  const auto apart = [&](double a, double b, double norm) {
    return std::abs(a - factor * b) / std::max({std::abs(norm), floor, 1e-300});
  };
  return std::max({apart(found.sum, one.sum, factor * one.one),
                   apart(found.one, one.one, factor * one.one),
                   apart(found.two, one.two, factor * one.two),
                   apart(found.four, one.four, factor * one.four)});
}

}  // namespace

std::optional<DrillFit> fit_rows(const DrillTensors& ranks, const DrillTensor& one, double factor,
                                 double floor) {
  if (all_same_but(ranks, one, 0)) return fit_along(ranks, one, &DrillTensor::rows, factor, floor);
  if (all_same_but(ranks, one, 1))
    return fit_along(ranks, one, &DrillTensor::columns, factor, floor);
  return std::nullopt;
}

std::optional<DrillFit> fit_each(const DrillTensors& ranks, const DrillTensor& one,
                                 const std::vector<double>& factors, double floor) {
  if (!same_shape(ranks, one)) return std::nullopt;
  Moments moments;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (size_t i = 0; i < one.rows->size(); ++i)
      moments.add((*ranks[rank]->rows)[i], factors[rank] * (*one.rows)[i]);
  return moments.fit(floor);
}

std::optional<DrillFit> fit_sum(const DrillTensors& ranks, const DrillTensor& one,
                                const std::vector<double>& weights, double floor) {
  if (!same_shape(ranks, one)) return std::nullopt;
  Moments moments;
  for (size_t i = 0; i < one.rows->size(); ++i) {
    double sum = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      sum += weights[rank] * (*ranks[rank]->rows)[i];
    moments.add(sum, (*one.rows)[i]);
  }
  return moments.fit(floor);
}

std::optional<DrillFit> fit_elements(const DrillTensors& ranks, const DrillTensor& one,
                                     double factor, double floor) {
  ElementNorms all;
  for (const DrillTensor* rank : ranks) {
    if (!rank->norms) return std::nullopt;
    all.sum += rank->norms->sum;
    all.one += rank->norms->one;
    all.two = std::hypot(all.two, rank->norms->two);
    all.four += std::pow(rank->norms->four, 4);
  }
  all.four = std::pow(all.four, 0.25);
  if (!one.norms) return std::nullopt;
  return DrillFit{norms_apart(all, *one.norms, factor, floor), std::nullopt};
}

std::optional<DrillFit> fit_all_elements(const DrillTensors& ranks, const DrillTensor& one,
                                         double floor) {
  DrillFit fit;
  for (const DrillTensor* rank : ranks) {
    if (!rank->norms || !one.norms || rank->shape != one.shape) return std::nullopt;
    fit.distance = std::max(fit.distance, norms_apart(*rank->norms, *one.norms, 1, floor));
  }
  return fit;
}

bool may_fit(const DrillTensors& ranks, const DrillTensor& one) {
  // Of the same shape they may be addends; without prints nothing tells.
  const auto unknown = [&](const DrillTensor* rank) {
    return !rank->norms || (!rank->rows && rank->shape == one.shape);
  };
  return !one.norms || std::any_of(ranks.begin(), ranks.end(), unknown);
}

}  // namespace lockstep
