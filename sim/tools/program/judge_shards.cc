#include "sim/tools/program/judge_shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sim/judge/rank_view.h"
#include "sim/tools/program/judge.h"
#include "sim/tools/program/judge_causes.h"
#include "sim/tools/program/sketch.h"
#include "sim/tools/program/weights_fit.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

double norm_of(const std::vector<Sketch>& gradients) {
  double sum = 0;
  for (const Sketch& gradient : gradients)
    if (gradient) sum += gradient->back() * gradient->back();
  return std::sqrt(sum);
}

// Of the ranks that hold one copy of the whole.
Ranks first_copy(const Ranks& ranks, size_t step) {
  Ranks own;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(own),
               [&](const ProgramRank& rank) { return rank.steps[step].copy == 0; });
  return own;
}

// What multiples of the ranks' shards are to add up to.
std::vector<WeightedRow> equations(const Ranks& ranks, const ProgramRank& one, size_t step) {
  std::vector<WeightedRow> rows;
  const ProgramStep& due = one.steps[step];
  for (size_t i = 0; i < due.names.size(); ++i) {
    if (!due.grads[i]) continue;
    for (size_t k = 0; k < kProjections; ++k) {
      WeightedRow& row = rows.emplace_back();
      for (const ProgramRank& rank : ranks) {
        const Sketch& shard = rank.steps[step].shard_grads[i];  // absent: it holds no rows
        row.push_back(shard ? (*shard)[k] : 0);
      }
      row.push_back((*due.grads[i])[k]);
    }
  }
  return rows;
}

// The limit of a norm that several ranks' shards have, and no rank's exceeds; 0: there is none.
double limit_of(const Ranks& ranks, size_t step) {
  std::vector<double> norms;
  for (const ProgramRank& rank : ranks) norms.push_back(norm_of(rank.steps[step].shard_grads));
  const double most = *std::max_element(norms.begin(), norms.end());
  const auto at_limit = [&](double norm) { return norm > most * (1 - kAlikeNorms); };
  return std::count_if(norms.begin(), norms.end(), at_limit) > 1 ? most : 0;
}

std::optional<ShardFinding> without_gradients(const Ranks& ranks, size_t step) {
  std::vector<int64_t> without;
  for (const ProgramRank& rank : ranks)
    if (norm_of(rank.steps[step].shard_grads) == 0) without.push_back(rank.rank);
  if (without.empty() || without.size() == ranks.size()) return std::nullopt;
  return ShardFinding{
      ProgramCause::scaled_apart,
      fmt::format("all shards of gradients of {} are zero, or missing", ranks_text(without))};
}

bool is_sharded(const Ranks& ranks, size_t step) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    const ProgramStep& own = rank.steps[step];
    return !own.names.empty() && own.shards.size() == own.names.size() &&
           own.shard_grads.size() == own.names.size();
  });
}

// Gradients that are those of one device, times one number.
struct Multiples {
  double factor = 1;
  double square = 0;  // of their norm
};

std::vector<Multiples>::iterator of_factor(std::vector<Multiples>* all, double factor) {
  return std::find_if(all->begin(), all->end(), [&](const Multiples& one) {
    return std::abs(one.factor / factor - 1) < kProgramRatioBound;
  });
}

// False: it is no multiple of what is due.
bool take_multiple(const Sketch& own, const Sketch& due, std::vector<Multiples>* all) {
  const double factor = sketch_ratio(own, due);
  if (!own || !(factor > 0)) return false;
  if (!agree(own, scaled_by(due, factor))) return false;
  auto at = of_factor(all, factor);
  if (at == all->end()) at = all->insert(at, Multiples{.factor = factor});
  at->square += own->back() * own->back();
  return true;
}

// Of a rank, by factor. Empty: some gradient is no multiple.
std::vector<Multiples> multiples_of(const ProgramStep& own, const ProgramStep& due) {
  std::vector<Multiples> found;
  for (size_t i = 0; i < due.names.size(); ++i)
    if (due.grads[i] && due.grads[i]->back() > 0 &&
        !take_multiple(own.grads[i], due.grads[i], &found))
      return {};
  return found;
}

// Of all ranks, which may have them alike, or each its own. Empty: one has less than two.
std::vector<Multiples> multiples_of(const Ranks& ranks, const ProgramRank& one, size_t step) {
  std::vector<Multiples> all;
  for (const ProgramRank& rank : ranks) {
    const std::vector<Multiples> own = multiples_of(rank.steps[step], one.steps[step]);
    if (own.size() < 2) return {};
    for (const Multiples& multiple : own)
      if (of_factor(&all, multiple.factor) == all.end()) all.push_back(multiple);
  }
  return all;
}

// That several have; 0: there is none.
double shared_norm(const std::vector<Multiples>& all) {
  for (const Multiples& one : all) {
    const auto is_alike = [&](const Multiples& other) {
      return std::abs(std::sqrt(other.square / one.square) - 1) < kAlikeNorms;
    };
    if (std::count_if(all.begin(), all.end(), is_alike) > 1) return std::sqrt(one.square);
  }
  return 0;
}

}  // namespace

std::optional<ShardFinding> judge_owned_parts(const Ranks& ranks, const ProgramRank& one,
                                              size_t step) {
  const std::vector<Multiples> all = multiples_of(ranks, one, step);
  const double limit = shared_norm(all);
  if (limit == 0) return std::nullopt;
  std::vector<double> factors;
  for (const Multiples& multiple : all) factors.push_back(multiple.factor);
  return ShardFinding{ProgramCause::clipped_by_shard,
                      fmt::format("parts of the gradients are those of one device, times {:.4g}, "
                                  "and the norm of several parts is {:.4g}",
                                  fmt::join(factors, ", "), limit)};
}

std::optional<ShardFinding> shards_without_gradients(const Ranks& ranks, size_t step) {
  return is_sharded(ranks, step) ? without_gradients(ranks, step) : std::nullopt;
}

std::optional<ShardFinding> judge_shards(const Ranks& all, const ProgramRank& one, size_t step) {
  const Ranks ranks = first_copy(all, step);
  if (ranks.size() < 2 || !is_sharded(ranks, step)) return std::nullopt;
  if (auto found = without_gradients(ranks, step)) return found;
  std::vector<double> factors = fitted_weights(equations(ranks, one, step), ranks.size());
  if (factors.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
  if (*least <= 0 || *most / *least - 1 < kProgramRatioBound) return std::nullopt;
  for (double& factor : factors) factor = 1 / factor;
  const std::string words = fmt::format("each rank's shards are those of one device, times {:.4g}",
                                        fmt::join(factors, ", "));
  const double limit = limit_of(ranks, step);
  if (limit == 0) return ShardFinding{ProgramCause::scaled_apart, words};
  return ShardFinding{ProgramCause::clipped_by_shard,
                      fmt::format("{}, and their norm on several ranks is {:.4g}", words, limit)};
}

}  // namespace lockstep
