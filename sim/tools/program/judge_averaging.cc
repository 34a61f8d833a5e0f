#include "sim/tools/program/judge_averaging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge.h"
#include "sim/tools/program/judge_update.h"
#include "sim/tools/program/sketch.h"
#include "sim/tools/program/weights_fit.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// The step that this one's optimizer made before; null: none. An outer optimizer may step between.
const ProgramStep* last_of(const ProgramRank& rank, size_t step) {
  for (size_t at = step; at-- > 0;)
    if (rank.steps[at].optimizer == rank.steps[step].optimizer) return &rank.steps[at];
  return nullptr;
}

bool is_mean(const Ranks& ranks, size_t step, size_t parameter) {
  const Sketch& now = ranks[0].steps[step].moved[parameter];
  if (!now) return false;
  for (size_t k = 0; k < kProjections; ++k) {
    double sum = 0;
    for (const ProgramRank& rank : ranks) {
      const Sketch& left = last_of(rank, step)->params[parameter];
      if (!left) return false;
      sum += (*left)[k];
    }
    if (std::abs(sum / static_cast<double>(ranks.size()) - (*now)[k]) >
        kProgramBound * std::max(now->back(), 1e-300))
      return false;
  }
  return true;
}

// Ranks had parted, and something else than steps made them alike on all.
bool is_made_alike(const Ranks& ranks, size_t step) {
  const ProgramStep& first = ranks[0].steps[step];
  bool parted = false;
  for (const ProgramRank& rank : ranks) {
    const ProgramStep &now = rank.steps[step], *last = last_of(rank, step);
    if (now.moved.empty() || now.before_hash != first.before_hash || now.names != first.names ||
        last == nullptr || last->names != first.names)
      return false;
    parted |= last->param_hashes != last_of(ranks[0], step)->param_hashes;
  }
  return parted;
}

bool is_averaged(const Ranks& ranks, size_t step) {
  if (!is_made_alike(ranks, step)) return false;
  for (size_t i = 0; i < ranks[0].steps[step].names.size(); ++i)
    if (!is_mean(ranks, step, i)) return false;
  return true;
}

bool is_alike(const Sketch& a, const Sketch& b) { return a && b && agree(a, b); }

// Of no rank's own as it left them, as a broadcast would make them, nor loaded: an outer optimizer
// makes them of what all ranks have done.
bool is_joined_anew(const Ranks& ranks, size_t step) {
  if (!is_made_alike(ranks, step)) return false;
  return std::none_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    const ProgramStep &now = rank.steps[step], &last = *last_of(rank, step);
    if (now.model_loads != last.model_loads) return true;
    for (size_t i = 0; i < now.moved.size(); ++i)
      if (!is_alike(now.moved[i], last.params[i])) return false;
    return true;
  });
}

// What a rank has is its own and that of others, by weights that add up to one, in all parameters
// that are not as it left them.
bool is_mixture(const Ranks& ranks, size_t step, const ProgramRank& rank) {
  std::vector<WeightedRow> rows;
  const ProgramStep &now = rank.steps[step], &last = *last_of(rank, step);
  for (size_t i = 0; i < now.moved.size(); ++i) {
    if (is_alike(now.moved[i], last.params[i])) continue;
    for (size_t k = 0; k < kProjections; ++k) {
      WeightedRow& row = rows.emplace_back();
      for (const ProgramRank& other : ranks) {
        const Sketch& left = last_of(other, step)->params[i];
        if (!left || !now.moved[i]) return false;
        row.push_back((*left)[k]);
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
  const auto is_of_one_optimizer = [&](const ProgramRank& rank) {
    const ProgramStep &now = rank.steps[step], *last = last_of(rank, step);
    return !now.moved.empty() && now.names == first.names && last != nullptr &&
           last->names == first.names;
  };
  return std::all_of(ranks.begin(), ranks.end(), is_of_one_optimizer) &&
         std::all_of(ranks.begin(), ranks.end(),
                     [&](const ProgramRank& rank) { return is_mixture(ranks, step, rank); });
}

// Of updates by hand, a collective of parameters that follows belongs to the step: ranks had parted
// in an earlier one, and this one leaves them alike.
bool is_joined_by_hand(const Ranks& ranks, size_t step) {
  const ProgramStep& last = ranks[0].steps[step - 1];
  return step > 1 && last.by_hand && last.within_step > 0 && left_alike(ranks, step - 1) &&
         !left_alike(ranks, step - 2);
}

// How ranks were brought together before a step, or after the last one.
enum class Combined { no, averaged, mixed, anew };
Combined joined_before(const Ranks& ranks, size_t step) {
  if (is_joined_by_hand(ranks, step)) return Combined::anew;
  if (step == ranks[0].steps.size()) return Combined::no;
  if (is_averaged(ranks, step)) return Combined::averaged;
  if (is_mixed(ranks, step)) return Combined::mixed;
  return is_joined_anew(ranks, step) ? Combined::anew : Combined::no;
}

const char* words_of(Combined joined) {
  return joined == Combined::averaged ? "average their parameters"
         : joined == Combined::mixed  ? "mix parameters with other ranks"
                                      : "continue from a combination of all their parameters";
}

}  // namespace

std::string averaged_parameters(const Ranks& ranks) {
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() != ranks[0].steps.size()) return "";
  size_t first = 0, times = 0;
  Combined how = Combined::no;
  for (size_t step = 1; step <= ranks[0].steps.size(); ++step) {
    const Combined joined = joined_before(ranks, step);
    if (joined == Combined::no) continue;
    how = times == 0 || joined == Combined::averaged ? joined : how;
    if (times++ == 0) first = step + 1;
  }
  if (times == 0) return "";
  return fmt::format(
      "ranks update with their own gradients and {}, first before step {}, {} {} in all: this is "
      "not training on one device",
      words_of(how), first, times, times == 1 ? "time" : "times");
}

}  // namespace lockstep
