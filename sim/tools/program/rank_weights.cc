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

}  // namespace

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
