#include "sim/tools/program/judge_penalty.h"

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

// The parameters that gradients of the step were made with; nullptr: they are not known.
const std::vector<Sketch>* parameters_before(const ProgramRank& rank, size_t step) {
  const ProgramStep& now = rank.steps[step];
  if (!now.moved.empty()) return &now.moved;
  if (!now.before.empty()) return &now.before;
  while (step-- > 0)
    if (rank.steps[step].optimizer == now.optimizer)
      return rank.steps[step].names == now.names ? &rank.steps[step].params : nullptr;
  return nullptr;
}

Sketch difference(const Sketch& a, const Sketch& b) {
  if (!a || !b) return std::nullopt;
  Sketch apart = a;
  double sum = 0;
  for (size_t k = 0; k < kProjections; ++k) {
    (*apart)[k] -= (*b)[k];
    sum += (*apart)[k] * (*apart)[k];
  }
  apart->back() = std::sqrt(sum / kProjections);
  return apart;
}

}  // namespace

std::optional<double> penalty_apart(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                                    size_t step) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  const std::vector<Sketch>* before = parameters_before(ranks[0], step);
  if (before == nullptr || before->size() != a.grads.size()) return std::nullopt;
  const double floor = largest_norm(b.grads) * 1e-4;
  double factor = 0;
  int64_t fitting = 0;  // one alone may be of one number, of which everything is a multiple
  for (size_t i = 0; i < a.grads.size(); ++i) {
    if (sketch_distance(a.grads[i], b.grads[i], floor) <= kProgramBound) continue;
    const Sketch apart = difference(a.grads[i], b.grads[i]);
    const double own = sketch_ratio(apart, (*before)[i]);
    if (own == 0 || sketch_distance(apart, scaled_by((*before)[i], own), 0) > kProgramRatioBound)
      return std::nullopt;
    if (fitting++ == 0) factor = own;
    if (std::abs(own / factor - 1) > kProgramRatioBound) return std::nullopt;
  }
  return fitting > 1 ? std::optional(factor) : std::nullopt;
}

}  // namespace lockstep
