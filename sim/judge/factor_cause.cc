#include "sim/judge/factor_cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/judge/lanes.h"

namespace lockstep {
namespace {

using Values = std::vector<double>;

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void subtract(Values* from, double factor, const Values& what) {
  for (size_t i = 0; i < from->size(); ++i) (*from)[i] -= factor * what[i];
}

}  // namespace

// Gram and Schmidt, each direction taken out twice: parts may be much alike.
std::optional<Values> weights_of(const Values& result, const std::vector<Values>& parts,
                                 double rest) {
  const size_t count = parts.size();
  if (count == 0 || result.size() < count + 4) return std::nullopt;
  std::vector<Values> directions;
  std::vector<Values> upper(count, Values(count, 0));  // parts = directions x upper
  for (size_t i = 0; i < count; ++i) {
    if (parts[i].size() != result.size()) return std::nullopt;
    Values left = parts[i];
    const double size = std::sqrt(dot(left, left));
    for (int pass = 0; pass < 2; ++pass)
      for (size_t j = 0; j < i; ++j) {
        const double along = dot(left, directions[j]);
        upper[j][i] += along;
        subtract(&left, along, directions[j]);
      }
    const double own = std::sqrt(dot(left, left));
    constexpr double kDependent = 1e-5;
    if (!(own > kDependent * size)) return std::nullopt;
    for (double& value : left) value /= own;
    upper[i][i] = own;
    directions.push_back(std::move(left));
  }
  Values weights(count), left = result;
  for (size_t i = 0; i < count; ++i) {
    weights[i] = dot(left, directions[i]);
    subtract(&left, weights[i], directions[i]);
  }
  if (!(std::sqrt(dot(left, left)) <= rest * std::sqrt(dot(result, result)))) return std::nullopt;
  for (size_t i = count; i-- > 0;) {
    for (size_t j = i + 1; j < count; ++j) weights[i] -= upper[i][j] * weights[j];
    weights[i] /= upper[i][i];
  }
  return weights;
}

namespace {

constexpr double kSameFactor = 1e-3;

bool is_factor(double value, double wanted) {
  return std::abs(value - wanted) <= kSameFactor * std::abs(wanted);
}

bool is_whole(double value) { return value >= 1 && is_factor(value, std::round(value)); }

// All ranks instead of those that have a batch, or the other way round.
bool is_of_joining(const CauseFacts& facts, double factor) {
  const auto all = static_cast<double>(facts.world_size),
             active = static_cast<double>(facts.active_ranks);
  return all != active && (is_factor(factor, all / active) || is_factor(factor, active / all));
}

// What a run counts besides its ranks: micro-batches, ranks of a host.
bool is_count(const CauseFacts& facts, double factor) {
  if (is_of_joining(facts, factor)) return true;
  return std::any_of(facts.counts.begin(), facts.counts.end(), [&](int64_t count) {
    const auto number = static_cast<double>(count), ranks = static_cast<double>(facts.active_ranks);
    return count > 1 && (is_factor(factor, number) || is_factor(factor, 1 / number) ||
                         is_factor(factor, number * ranks) || is_factor(factor, number / ranks));
  });
}

// Divided by this instead of the number of ranks; 0: by nothing that is counted.
double divisor_of(const CauseFacts& facts, double factor) {
  const auto ranks = static_cast<double>(facts.active_ranks);
  const double divisor = ranks / factor;
  const bool of_ranks = is_whole(divisor) && divisor <= 2 * ranks * (1 + kSameFactor);
  return of_ranks || is_factor(divisor, ranks * ranks) ? std::round(divisor) : 0;
}

bool agree(const CauseFacts& facts) {
  return verdict_of(facts, Lane::replica) != LaneVerdict::fail &&
         static_cast<int64_t>(facts.ranks.size()) == facts.world_size;
}

std::string parts_text(const MismatchEvidence& e) {
  return fmt::format("{} of {} gradients", e.gradients_wrong, e.gradients_total);
}

// Scaled by what each rank's own norm says: then factor x norm is the same on all.
bool by_own_norms(const std::vector<std::pair<double, double>>& factor_and_norm) {
  if (factor_and_norm.size() < 2) return false;
  const auto [first, norm] = factor_and_norm.front();
  bool differ = false;
  for (const auto& [factor, size] : factor_and_norm) {
    if (!(factor > 0) || !(size > 0) || !is_factor(factor * size, first * norm)) return false;
    differ = differ || !is_factor(factor, first);
  }
  return differ;
}

// The averaged gradients, by the norm of each rank's own.
Found clipped_by_own_norm(const CauseFacts& facts) {
  std::map<int64_t, std::pair<double, double>> of_rank;
  for (const auto& [rank, e] : facts.witnesses)
    if (e->one_ratio && e->own_norm > 0) of_rank[rank] = {e->ratio, e->own_norm};
  std::vector<std::pair<double, double>> all;
  for (const auto& [rank, pair] : of_rank) all.push_back(pair);
  if (!by_own_norms(all)) return {};
  return Cause{"clipping",
               fmt::format("each rank has scaled the average by the norm of its own gradients: on "
                           "rank {} they are {:.4g} x golden",
                           of_rank.begin()->first, all.front().first)};
}

// Each rank's row: by how much of each rank's own gradients, where 1 is right.
using Rows = std::map<int64_t, std::vector<double>>;

Rows rows_of(const CauseFacts& facts) {
  if (facts.first == nullptr) return {};
  std::map<int64_t, const MismatchEvidence*> of_rank;
  for (const auto& [rank, e] : facts.witnesses)
    if (e->lane == facts.first->lane && !e->own_sketch.empty()) of_rank[rank] = e;
  if (static_cast<int64_t>(of_rank.size()) != facts.world_size) return {};
  const double rest = facts.first->lane == Lane::float64 ? 1e-7 : 1e-4;
  std::vector<std::vector<double>> parts;
  for (const auto& [rank, e] : of_rank) {
    if (e->elements_wrong != of_rank.begin()->second->elements_wrong) return {};
    parts.push_back(e->own_sketch);
  }
  Rows rows;
  for (const auto& [rank, e] : of_rank) {
    auto weights = weights_of(e->run_sketch, parts, rest);
    if (!weights) return {};
    for (double& weight : *weights) weight *= static_cast<double>(facts.active_ranks);
    rows[rank] = std::move(*weights);
  }
  return rows;
}

bool is_near(double value, double wanted) { return std::abs(value - wanted) <= kSameFactor; }

std::vector<int64_t> ranks_with(const std::vector<double>& row, double weight) {
  std::vector<int64_t> ranks;
  for (size_t rank = 0; rank < row.size(); ++rank)
    if (is_near(row[rank], weight)) ranks.push_back(static_cast<int64_t>(rank));
  return ranks;
}

// Ranks that are in no sum, while the others count alike.
Found without_ranks(const std::vector<double>& row, int64_t on_rank) {
  const std::vector<int64_t> without = ranks_with(row, 0);
  if (without.empty() || without.size() == row.size()) return {};
  const double largest = *std::max_element(row.begin(), row.end());
  for (const double weight : row)
    if (!is_near(weight, 0) && !is_factor(weight, largest)) return {};
  return Cause{"missing_gradient",
               fmt::format("the average on rank {} is without what {} adds{}", on_rank,
                           ranks_in_words(without), without.size() == 1 ? "" : " each")};
}

// Gradients that were too long for a common bound, before they were added.
Found clipped_before(const CauseFacts& facts, const std::vector<double>& row) {
  std::map<int64_t, double> norms;
  for (const auto& [rank, e] : facts.witnesses)
    if (e->own_norm > 0) norms[rank] = e->own_norm;
  if (norms.size() != row.size()) return {};
  std::vector<std::pair<double, double>> clipped;
  for (size_t rank = 0; rank < row.size(); ++rank) {
    if (row[rank] > 1 + kSameFactor) return {};
    if (row[rank] < 1 - kSameFactor)
      clipped.emplace_back(row[rank], norms[static_cast<int64_t>(rank)]);
  }
  if (!by_own_norms(clipped)) return {};
  return Cause{"clipping", fmt::format("the gradients are an average of gradients that each rank "
                                       "clipped separately, to a norm of {:.4g}",
                                       clipped.front().first * clipped.front().second)};
}

Cause by_other_weights(const CauseFacts& facts, const std::vector<double>& row, int64_t on_rank) {
  bool counted = true;
  for (const double weight : row)
    counted = counted && (is_near(weight, 1) || divisor_of(facts, weight) > 0);
  std::string weights;
  for (const double weight : row) weights += fmt::format(" {:.4g}", weight);
  return {counted ? "wrong_divisor" : "wrong_scale",
          fmt::format("the average on rank {} has the ranks' gradients{} times, not once each",
                      on_rank, weights)};
}

bool is_right(const std::vector<double>& row) {
  return std::all_of(row.begin(), row.end(), [](double weight) { return is_near(weight, 1); });
}

// Where ranks have the average of what they computed, one of them has computed something else: so
// many times what the golden run has of its samples. (Replay knows what each should have computed.)
Found computed_times(const CauseFacts& facts, int64_t rank, const MismatchEvidence& e) {
  if (e.lane != Lane::float64 || !averaged_rightly(facts)) return {};
  const double of_golden = 1 - e.own_added * static_cast<double>(facts.active_ranks);
  if (is_near(of_golden, 0)) return {};
  const std::string what = fmt::format("before the reduction, rank {}'s gradients are", rank);
  if (is_factor(1 / of_golden, 2))
    return Cause{"doubled_gradient", what + " twice the golden run's"};
  return cause_of_factor(facts, 1 / of_golden, what);
}

Found share_of(const CauseFacts& facts, int64_t rank, const MismatchEvidence& e) {
  if (auto cause = computed_times(facts, rank, e)) return cause;
  const double share = 1 + e.own_added * static_cast<double>(facts.active_ranks);
  if (is_near(share, 0))
    return Cause{
        "missing_gradient",
        fmt::format("{} are the golden run's without what rank {} adds", parts_text(e), rank)};
  if (is_factor(share, 2))
    return Cause{"doubled_gradient",
                 fmt::format("{} have what rank {} adds twice", parts_text(e), rank)};
  return cause_of_factor(facts, share, fmt::format("rank {}'s part of the average is", rank));
}

}  // namespace

Cause cause_of_factor(const CauseFacts& facts, double factor, const std::string& what) {
  std::string text = fmt::format("{} {:.4g} x golden", what, factor);
  if (const double divisor = divisor_of(facts, factor); divisor == 1)
    return {"wrong_divisor",
            fmt::format("{}: summed, not divided by {}", text, facts.active_ranks)};
  else if (divisor > 0)
    return {"wrong_divisor",
            fmt::format("{}: divided by {:.0f} instead of {}", text, divisor, facts.active_ranks)};
  if (is_count(facts, factor) || is_factor(factor, static_cast<double>(facts.active_ranks)))
    return {"wrong_divisor", text};
  return {"wrong_scale", text + ": by no number that the run counts"};
}

Found one_ranks_share(const CauseFacts& facts) {
  std::map<int64_t, const MismatchEvidence*> added;
  for (const auto& [rank, e] : facts.witnesses)
    if (e->own_added != 0) added.emplace(rank, e);
  if (added.empty() || facts.summed_replicas > 0)
    return {};  // one process, of whose sum no part is its own
  const auto& [rank, e] = *added.begin();
  if (added.size() == 1 && agree(facts)) return share_of(facts, rank, *e);
  // On ranks that do not agree, or on each of them: not what the sum has, but what came on top.
  if (e->own_added < 0)
    return Cause{"missing_gradient",
                 fmt::format("on rank {}, {} are the golden run's less {:.4g} x the rank's own",
                             rank, parts_text(*e), -e->own_added)};
  return Cause{"doubled_gradient",
               fmt::format("on rank {}, {} are the golden run's plus {:.4g} x the rank's own", rank,
                           parts_text(*e), e->own_added)};
}

Found one_ratio(const CauseFacts& facts) {
  if (auto cause = clipped_by_own_norm(facts)) return cause;
  for (const auto& [rank, e] : facts.witnesses) {
    if (!e->one_ratio || !std::isfinite(e->ratio)) continue;
    if (e->ratio == 0)
      return Cause{"missing_gradient", fmt::format("{} are zero on rank {}", parts_text(*e), rank)};
    if (e->elements_wrong == 1 && !agree(facts)) continue;  // any factor fits one element
    if (std::abs(e->ratio - 1) < 1e-6)
      return Cause{
          "precision",
          fmt::format("gradients are {:.10g} x golden: a factor of fewer digits", e->ratio)};
    if (std::abs(e->ratio - 2) < 1e-3 && e->gradients_wrong < e->gradients_total)
      return Cause{"doubled_gradient",
                   fmt::format("{} are twice the golden run's", parts_text(*e))};
    if (facts.summed_replicas > 0)
      return Cause{"wrong_divisor",
                   fmt::format("gradients are {:.4g} x golden: the sum over {} replicas divided by "
                               "{:.4g}, where the loss is over all outputs already",
                               e->ratio, facts.summed_replicas, 1 / e->ratio)};
    const bool alone = static_cast<int64_t>(facts.ranks.size()) < facts.world_size;
    return cause_of_factor(
        facts, e->ratio, alone ? fmt::format("on rank {}, gradients are", rank) : "gradients are");
  }
  return {};
}

Found other_weights(const CauseFacts& facts) {
  for (const auto& [rank, row] : rows_of(facts)) {
    if (is_right(row)) continue;
    if (auto cause = without_ranks(row, rank)) return cause;
    if (auto cause = clipped_before(facts, row)) return cause;
    return by_other_weights(facts, row, rank);
  }
  return {};
}

bool averaged_rightly(const CauseFacts& facts) {
  const Rows rows = rows_of(facts);
  return !rows.empty() && std::all_of(rows.begin(), rows.end(),
                                      [](const auto& row) { return is_right(row.second); });
}

}  // namespace lockstep
