#include "sim/tools/program/judge_averaging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/sketch.h"

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

}  // namespace

std::string averaged_parameters(const Ranks& ranks) {
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() != ranks[0].steps.size()) return "";
  size_t first = 0, times = 0;
  for (size_t step = 1; step < ranks[0].steps.size(); ++step) {
    if (!is_averaged(ranks, step)) continue;
    if (times++ == 0) first = step + 1;
  }
  if (times == 0) return "";
  return fmt::format(
      "ranks update by gradients of their own and average their parameters, before step {} for the "
      "first time, {} {} in all: no training of one device",
      first, times, times == 1 ? "time" : "times");
}

}  // namespace lockstep
