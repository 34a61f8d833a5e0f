#include "sim/tools/program/judge_averaging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/sketch.h"
#include "sim/tools/program/weights_fit.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

bool is_mean(const Ranks& ranks, size_t step, size_t parameter) {
  const Sketch& now = ranks[0].steps[step].moved[parameter];
  if (!now) return false;
  for (size_t k = 0; k < kProjections; ++k) {
    double sum = 0;
    for (const ProgramRank& rank : ranks) {
      const Sketch& left = rank.steps[step - 1].params[parameter];
      if (!left) return false;
      sum += (*left)[k];
    }
    if (std::abs(sum / static_cast<double>(ranks.size()) - (*now)[k]) >
        kProgramBound * std::max(now->back(), 1e-300))
      return false;
  }
  return true;
}

bool is_averaged(const Ranks& ranks, size_t step) {
  const ProgramStep& first = ranks[0].steps[step];
  bool parted = false;
  for (const ProgramRank& rank : ranks) {
    const ProgramStep &now = rank.steps[step], &last = rank.steps[step - 1];
    if (now.moved.empty() || now.before_hash != first.before_hash || now.names != first.names ||
        last.names != first.names)
      return false;
    parted |= last.param_hashes != ranks[0].steps[step - 1].param_hashes;
  }
  if (!parted) return false;
  for (size_t i = 0; i < first.names.size(); ++i)
    if (!is_mean(ranks, step, i)) return false;
  return true;
}

bool is_alike(const Sketch& a, const Sketch& b) {
  return a && b && sketch_distance(a, b, 0) <= kProgramBound;
}

// What a rank has is its own and that of others, by weights that add up to one, in all parameters
// that are not as it left them.
bool is_mixture(const Ranks& ranks, size_t step, const ProgramRank& rank) {
  std::vector<WeightedRow> rows;
  const ProgramStep &now = rank.steps[step], &last = rank.steps[step - 1];
  for (size_t i = 0; i < now.moved.size(); ++i) {
    if (is_alike(now.moved[i], last.params[i])) continue;
    for (size_t k = 0; k < kProjections; ++k) {
      WeightedRow& row = rows.emplace_back();
      for (const ProgramRank& other : ranks) {
        if (!other.steps[step - 1].params[i] || !now.moved[i]) return false;
        row.push_back((*other.steps[step - 1].params[i])[k]);
      }
      row.push_back((*now.moved[i])[k]);
    }
  }
  const std::vector<double> weights = fitted_weights(rows, ranks.size());
  double sum = 0;
  size_t positive = 0;
  for (const double weight : weights) {
    if (weight < -kProgramRatioBound) return false;
    sum += weight;
    positive += weight > kProgramRatioBound ? 1 : 0;
  }
  return positive > 1 && std::abs(sum - 1) < kProgramRatioBound;
}

bool is_mixed(const Ranks& ranks, size_t step) {
  const ProgramStep& first = ranks[0].steps[step];
  return std::all_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    const ProgramStep &now = rank.steps[step], &last = rank.steps[step - 1];
    return !now.moved.empty() && now.names == first.names && last.names == first.names &&
           now.optimizer == last.optimizer && is_mixture(ranks, step, rank);
  });
}

}  // namespace

std::string averaged_parameters(const Ranks& ranks) {
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() != ranks[0].steps.size()) return "";
  size_t first = 0, times = 0;
  bool whole = false;
  for (size_t step = 1; step < ranks[0].steps.size(); ++step) {
    const bool averaged = is_averaged(ranks, step);
    if (!averaged && !is_mixed(ranks, step)) continue;
    whole |= averaged;
    if (times++ == 0) first = step + 1;
  }
  if (times == 0) return "";
  return fmt::format(
      "ranks update by gradients of their own and {}, before step {} for the first time, {} {} in "
      "all: no training of one device",
      whole ? "average their parameters" : "mix parameters with those of others", first, times,
      times == 1 ? "time" : "times");
}

}  // namespace lockstep
