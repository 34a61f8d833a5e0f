#include "sim/tools/program/rank_weights.h"

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/sketch.h"
#include "sim/tools/program/weights_fit.h"

namespace lockstep {
namespace {

constexpr double kAlikeWeights = 1e-6;

const Sketch* gradient_of(const DrillRank& rank, const std::string& name) {
  for (const DrillParameter& one : rank.parameters)
    if (one.name == name && one.gradient) return &one.gradient;
  return nullptr;
}

// Of one parameter: what the ranks' gradients are to add up to.
void add_equations(const std::vector<DrillRank>& ranks, const std::string& name,
                   const Sketch* target, std::vector<WeightedRow>* rows) {
  std::vector<const Sketch*> all;
  for (const DrillRank& rank : ranks) all.push_back(gradient_of(rank, name));
  all.push_back(target);
  if (std::find(all.begin(), all.end(), nullptr) != all.end()) return;
  for (size_t i = 0; i < kProjections; ++i) {
    WeightedRow& row = rows->emplace_back();
    for (const Sketch* gradient : all) row.push_back((**gradient)[i]);
  }
}

// Of all gradients of a rank together, in so far as they take part in the step.
double whole_norm(const DrillRank& rank, const ProgramStep& step) {
  double sum = 0;
  for (const std::string& name : step.names)
    if (const Sketch* gradient = gradient_of(rank, name))
      sum += gradient->value().back() * gradient->value().back();
  return std::sqrt(sum);
}

// A parameter's gradients: each rank's own, and what the optimizer is given, times a number of
// ranks where that is their mean.
struct OwnAndSum {
  std::vector<Sketch> own;
  Sketch sum;
};

std::vector<OwnAndSum> gradients_of(const std::vector<DrillRank>& ranks, const ProgramStep& step,
                                    double divisor) {
  std::vector<OwnAndSum> found;
  for (size_t i = 0; i < step.names.size(); ++i) {
    OwnAndSum one;
    for (const DrillRank& rank : ranks)
      if (const Sketch* own = gradient_of(rank, step.names[i])) one.own.push_back(*own);
    one.sum = scaled_by(step.grads[i], divisor);
    if (one.own.size() == ranks.size() && one.sum && one.sum->back() > 0) found.push_back(one);
  }
  return found;
}

// Those of a norm beyond the limit count as directions.
Sketch limited_sum(const OwnAndSum& one, double limit) {
  std::vector<double> sum(kProjections + 1, 0.0);
  for (const Sketch& own : one.own) {
    const double factor = own->back() > limit ? limit / own->back() : 1.0;
    for (size_t k = 0; k < kProjections; ++k) sum[k] += factor * (*own)[k];
  }
  sum.back() = one.sum->back();
  return sum;
}

// By the `count` ranks whose gradients are largest.
double limit_by(const OwnAndSum& one, size_t count) {
  std::vector<const Sketch*> own;
  for (const Sketch& rank : one.own) own.push_back(&rank);
  std::sort(own.begin(), own.end(),
            [](const Sketch* a, const Sketch* b) { return a->value().back() > b->value().back(); });
  Sketch rest = one.sum, directions = std::vector<double>(kProjections + 1, 0.0);
  for (size_t rank = 0; rank < own.size(); ++rank)
    for (size_t k = 0; k < kProjections; ++k)
      if (rank >= count)
        (*rest)[k] -= (**own[rank])[k];
      else if (own[rank]->value().back() > 0)
        (*directions)[k] += (**own[rank])[k] / own[rank]->value().back();
  return sketch_ratio(rest, directions);
}

bool explains(const std::vector<OwnAndSum>& all, double limit) {
  size_t limited = 0;
  for (const OwnAndSum& one : all) {
    if (sketch_distance(limited_sum(one, limit), one.sum, 0) > kAlikeNorms) return false;
    limited += std::any_of(one.own.begin(), one.own.end(),
                           [&](const Sketch& own) { return own->back() > limit; })
                   ? 1
                   : 0;
  }
  return limited > 1;
}

}  // namespace

std::optional<double> limit_of_each_parameter(const std::vector<DrillRank>& ranks,
                                              const ProgramStep& step) {
  for (const double divisor : {static_cast<double>(ranks.size()), 1.0}) {
    const std::vector<OwnAndSum> all = gradients_of(ranks, step, divisor);
    for (const OwnAndSum& one : all)
      for (size_t count = 1; count <= ranks.size(); ++count)
        if (const double limit = limit_by(one, count); limit > 0 && explains(all, limit))
          return limit;
  }
  return std::nullopt;
}

std::optional<LimitedNorms> limited_norms(const std::vector<DrillRank>& ranks,
                                          const ProgramStep& step) {
  std::vector<WeightedRow> rows;
  for (size_t i = 0; i < step.names.size(); ++i)
    add_equations(ranks, step.names[i], step.grads[i] ? &step.grads[i] : nullptr, &rows);
  LimitedNorms found;
  for (const double weight : fitted_weights(rows, ranks.size()))
    found.factors.push_back(weight * static_cast<double>(ranks.size()));
  if (found.factors.empty()) return std::nullopt;
  double largest_left = 0;  // norm of a rank whose gradient is as it was
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const double norm = whole_norm(ranks[rank], step);
    if (norm == 0) found.factors[rank] = 1;
    const double factor = found.factors[rank];
    if (std::abs(factor - 1) < kAlikeWeights) {
      largest_left = std::max(largest_left, norm);
      continue;
    }
    if (factor <= 0 || factor > 1) return std::nullopt;
    if (found.limit == 0) found.limit = factor * norm;
    if (std::abs(factor * norm / found.limit - 1) > kAlikeNorms) return std::nullopt;
  }
  const auto [least, most] = std::minmax_element(found.factors.begin(), found.factors.end());
  if (*most - *least < kAlikeWeights || largest_left > found.limit * (1 + kAlikeNorms))
    return std::nullopt;
  return found;
}

std::optional<std::vector<double>> rank_weights(const std::vector<DrillRank>& ranks,
                                                const DrillRank& one) {
  std::vector<WeightedRow> rows;
  for (const DrillParameter& parameter : one.parameters)
    add_equations(ranks, parameter.name, gradient_of(one, parameter.name), &rows);
  const std::vector<double> weights = fitted_weights(rows, ranks.size());
  if (weights.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
  if (*least < -kAlikeWeights || *most - *least < kAlikeWeights) return std::nullopt;
  return weights;
}

}  // namespace lockstep
