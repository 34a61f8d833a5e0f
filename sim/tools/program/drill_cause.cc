#include "sim/tools/program/drill_cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "sim/judge/rank_view.h"
#include "sim/tools/program/drill_given.h"
#include "sim/tools/program/weights_fit.h"

namespace lockstep {

bool is_proven(const DrillFinding& drilled, const std::vector<ProgramRank>& ranks) {
  const auto samples = [&](const ProgramRank& rank) {
    return static_cast<double>(rank.steps.at(static_cast<size_t>(drilled.step - 1)).samples.size());
  };
  if (drilled.weights.size() != ranks.size()) return false;
  double all = 0;
  for (const ProgramRank& rank : ranks) all += samples(rank);
  if (all == 0) return false;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (std::abs(drilled.weights[i] - samples(ranks[i]) / all) > kProgramRatioBound) return false;
  return true;
}

namespace {

bool is_about(double value, double expected) {
  return std::abs(value / expected - 1) < kProgramRatioBound;
}

// Shares of a count that add up to one, whether or not the mean is then divided as it should be.
ProgramCause cause_of(const std::vector<double>& weights) {
  if (!are_shares_of_a_count(weights)) return ProgramCause::function_of_mean;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto world = static_cast<double>(weights.size());
  const bool of_one_count = is_about(sum, 1) || is_about(sum, world) || is_about(sum, 1 / world);
  return of_one_count ? ProgramCause::mean_of_means : ProgramCause::loss_scaled_apart;
}

// As where a number is added to sums, before they are divided: soft Dice.
bool is_function_of_means(const DrillFinding& drilled) {
  return drilled.stage == DrillStage::forward && drilled.of_means && !drilled.numbers &&
         drilled.shape == drilled.one_shape && !drilled.place.function.ends_with(".apply");
}

// By how much each rank's gradient was multiplied beside one device's.
std::string multiples_text(const std::vector<double>& weights) {
  std::vector<double> factors;
  for (const double weight : weights) {
    if (weight == 0) return "";
    factors.push_back(1 / (weight * static_cast<double>(weights.size())));
  }
  return fmt::format(": they are multiplied by {:.4g}", fmt::join(factors, ", "));
}

// Of one tensor alone, so that what it makes of samples that are right is not made one by one.
bool mixes_samples(const std::string& function) {
  constexpr std::array<std::string_view, 27> kMixing = {
      "topk",     "sort", "argsort",  "kthvalue", "median",    "nanmedian",   "mode",
      "quantile", "max",  "min",      "amax",     "amin",      "aminmax",     "std",
      "var",      "norm", "std_mean", "var_mean", "logsumexp", "vector_norm", "cdist",
      "pdist",    "cov",  "corrcoef", "cumsum",   "cumprod",   "prod"};
  const std::string name = function.substr(function.rfind('.') + 1);
  return std::find(kMixing.begin(), kMixing.end(), name) != kMixing.end();
}

bool is_times_ranks(double value, double ranks) {
  return is_about(value, ranks) || is_about(value, 1 / ranks);
}

// The ranks' own number is a factor of one side, or there is another that one device has not.
ProgramCause cause_of_shared_factor(const ScalarFactors& factors) {
  const auto ranks = static_cast<double>(factors.ranks.size());
  if (is_about(factors.ranks[0], factors.one)) return ProgramCause::unknown;
  const bool by_ranks = is_times_ranks(factors.ranks[0], ranks) && is_about(factors.one, 1);
  return by_ranks ? ProgramCause::scaled_by_ranks : ProgramCause::other_numbers;
}

// Of shares of a count, which is then divided by, the counts add up to that of one device.
ProgramCause cause_of_factors(const ScalarFactors& factors) {
  double counts = 0;
  for (const double factor : factors.ranks) counts += 1 / factor;
  const bool alike = std::all_of(factors.ranks.begin(), factors.ranks.end(),
                                 [&](double factor) { return is_about(factor, factors.ranks[0]); });
  if (alike) return cause_of_shared_factor(factors);
  return is_about(counts, 1 / factors.one) ? ProgramCause::mean_of_means
                                           : ProgramCause::loss_scaled_apart;
}

// A maximum or the like of samples, made where no gradient goes.
bool is_given_mixture(const DrillFinding& drilled) {
  return drilled.stage == DrillStage::forward && drilled.whole &&
         mixes_samples(drilled.whole->place.function);
}

// Where the first wrong operator multiplies by a number, that is no other function of a mean.
ProgramCause cause_of_weights(const DrillFinding& drilled) {
  const ProgramCause cause = cause_of(drilled.weights);
  if (cause == ProgramCause::function_of_mean && is_given_mixture(drilled))
    return ProgramCause::own_batch;
  if (cause != ProgramCause::function_of_mean || !drilled.factors) return cause;
  const ProgramCause scaled = cause_of_factors(*drilled.factors);
  return scaled == ProgramCause::unknown ? cause : scaled;
}

std::string factors_text(const ScalarFactors& factors, ProgramCause cause,
                         const std::string& what = "it") {
  if (cause == ProgramCause::other_numbers || cause == ProgramCause::scaled_by_ranks)
    return fmt::format("; {} is multiplied by {:.4g} on each rank, and by {:.4g} on one device",
                       what, factors.ranks[0], factors.one);
  if (cause != ProgramCause::mean_of_means)
    return fmt::format("; they are multiplied by {:.4g}", fmt::join(factors.ranks, ", "));
  std::vector<double> counts;
  for (const double factor : factors.ranks) counts.push_back(1 / factor);
  return fmt::format("; they are divided by {:.4g}", fmt::join(counts, ", "));
}

// A sum over samples, beside terms that are means, in a loss whose gradients are averaged: or the
// reverse, where the program takes their sum.
ProgramCause cause_of_term(const DrillTerm& term, bool takes_sums) {
  if (term.factors) return cause_of_factors(*term.factors);
  if (term.was_mean) return ProgramCause::unknown;
  return takes_sums ? ProgramCause::not_divided : ProgramCause::summed_loss;
}

std::string words_of_term(const DrillTerm& term, ProgramCause cause) {
  const std::string where = fmt::format("({} at {})", term.place.function, term.place.line);
  return term.factors ? factors_text(*term.factors, cause, "one term of the loss " + where)
                      : fmt::format("; the loss adds a sum over samples {} to a mean", where);
}

// An optimizer that exchanges gradients within its step, and updates by a multiple of their mean.
ProgramCause cause_of_update(const DrillFinding& drilled, const ProgramStep& of_rank_0) {
  if (of_rank_0.within_step == 0 || !drilled.ratio) return ProgramCause::unknown;
  const auto ranks = static_cast<double>(drilled.world);
  if (is_about(*drilled.ratio, ranks)) return ProgramCause::not_divided;
  return is_about(*drilled.ratio, 1 / ranks) ? ProgramCause::divided_twice : ProgramCause::unknown;
}

// As a sum over ranks that should have been divided.
bool is_shared_whole(const DrillFinding& drilled) {
  return drilled.whole && drilled.whole->shared && !drilled.whole->place.function.empty();
}

// All that a backward of the script is given fits, and the gradient of a parameter that it makes of
// it is no sum over samples.
bool is_of_own_backward(const DrillFinding& drilled) {
  return drilled.stage == DrillStage::local_gradient && drilled.in_function;
}

ProgramCause cause_of_operator(const DrillFinding& drilled, const ProgramStep& of_rank_0) {
  const std::string& function = drilled.place.function;
  if (!drilled.comm_hook.empty()) return ProgramCause::hook_beyond_bound;
  if (drilled.stage == DrillStage::backward)
    return (function.ends_with(".apply") && of_rank_0.exchanges > 0) ||
                   (drilled.in_function && of_rank_0.gathered_inside)
               ? ProgramCause::gathered_as_constants
           : drilled.numbers && !drilled.numbers->shared ? ProgramCause::own_numbers
                                                         : ProgramCause::unknown;
  if (is_of_own_backward(drilled) && of_rank_0.exchanges == 0 && !of_rank_0.gathered_inside)
    return ProgramCause::own_batch;
  if (drilled.stage != DrillStage::forward) return ProgramCause::unknown;
  if (drilled.factors)
    if (const auto cause = cause_of_factors(*drilled.factors); cause != ProgramCause::unknown)
      return cause;
  if (drilled.summed_term)
    if (const auto cause = cause_of_term(*drilled.summed_term, drilled.takes_sums);
        cause != ProgramCause::unknown)
      return cause;
  if (drilled.whole && drilled.whole->place.function.ends_with(".batch_norm"))
    return ProgramCause::local_batch_norm;
  if (is_shared_whole(drilled)) return ProgramCause::other_numbers;
  if (drilled.whole && !drilled.whole->place.function.empty())
    return drilled.whole->kept ? ProgramCause::own_constants : ProgramCause::own_batch;
  if (!drilled.given_fits) return ProgramCause::unknown;
  if (drilled.lacks_offset) return ProgramCause::indices_without_offset;
  if (drilled.numbers && !drilled.numbers->shared) return ProgramCause::own_numbers;
  if (function.ends_with(".batch_norm")) return ProgramCause::local_batch_norm;
  if (drilled.own_mean) return ProgramCause::own_batch;
  const bool other_shape = drilled.shape != drilled.one_shape && !drilled.distance;
  if (other_shape || mixes_samples(function)) return ProgramCause::own_batch;
  if (drilled.whole) return ProgramCause::own_constants;
  if (drilled.numbers) return ProgramCause::other_numbers;
  return is_function_of_means(drilled) ? ProgramCause::function_of_mean : ProgramCause::unknown;
}

std::string words_of_operator(const DrillFinding& drilled, ProgramCause cause) {
  if (drilled.summed_term && cause == cause_of_term(*drilled.summed_term, drilled.takes_sums))
    return words_of_term(*drilled.summed_term, cause);
  if (drilled.factors && cause == cause_of_factors(*drilled.factors))
    return factors_text(*drilled.factors, cause);
  if (cause == ProgramCause::loss_scaled_apart || cause == ProgramCause::mean_of_means)
    return drilled.factors ? factors_text(*drilled.factors, cause) : "";
  if (cause == ProgramCause::other_numbers && is_shared_whole(drilled))
    return fmt::format(
        "; {} is given what {} makes at {}, which is alike on all ranks but not that of one device",
        drilled.place.function, drilled.whole->place.function, drilled.whole->place.line);
  if (cause == ProgramCause::own_numbers || cause == ProgramCause::other_numbers)
    return fmt::format("; {} is given {:.4g}, and on one device {:.4g}", drilled.place.function,
                       fmt::join(drilled.numbers->ranks, ", "), drilled.numbers->one);
  if (cause == ProgramCause::hook_beyond_bound)
    return fmt::format("; after backward the gradient is as the communication hook {} left it",
                       drilled.comm_hook);
  if (cause == ProgramCause::indices_without_offset)
    return fmt::format("; {} is given the same indices on every rank", drilled.place.function);
  if (cause == ProgramCause::own_constants && drilled.whole->kept)
    return fmt::format(
        "; {} is given what {} makes of each rank's own samples before the training, at {}",
        drilled.place.function, drilled.whole->place.function, drilled.whole->place.line);
  if (cause == ProgramCause::own_constants)
    return fmt::format("; {} is given it", drilled.place.function);
  if (cause == ProgramCause::own_batch && is_of_own_backward(drilled))
    return fmt::format("; the backward of {} makes the gradient of {} of each rank's own batch, {}",
                       drilled.place.function, drilled.parameter, drilled.place.line);
  const bool of_batch = cause == ProgramCause::own_batch || cause == ProgramCause::local_batch_norm;
  if (of_batch && drilled.own_mean)
    return fmt::format("; {} is given what {} makes of each rank's own batch, at {}",
                       drilled.place.function, drilled.own_mean->function, drilled.own_mean->line);
  if (!of_batch || !drilled.whole || drilled.whole->place.function.empty()) return "";
  return fmt::format("; {} is given what {} makes of each rank's own batch, at {}",
                     drilled.place.function, drilled.whole->place.function,
                     drilled.whole->place.line);
}

void take_branch(const DrillFinding& drilled, ProgramFinding* wrong) {
  if (!drilled.branch) return;
  // The first wrong operator is given what ranks made by other ones.
  const bool parted =
      drilled.stage == DrillStage::forward && drilled.parting && !drilled.given_fits;
  if (drilled.branch->together && !parted) return;
  wrong->cause = ProgramCause::other_branches;
  const std::vector<int64_t>& users = drilled.branch->ranks;
  wrong->words +=
      fmt::format("; {} {} {}, and one device {}", users.empty() ? "no rank" : ranks_text(users),
                  users.size() < 2 ? "uses" : "use", drilled.branch->parameter,
                  drilled.branch->one ? "does" : "does not");
}

// Ranks have different numbers of samples, as of graphs with different numbers of nodes, and count
// equally; but the gradient of one device is no weighted mean of theirs, so that it is not only
// that, or not that at all.
void take_other_than_uneven(const DrillFinding& drilled, const ProgramStep& of_rank_0,
                            ProgramFinding* wrong) {
  if (drilled.stage != DrillStage::forward || !drilled.weights.empty()) return;
  const ProgramCause cause = cause_of_operator(drilled, of_rank_0);
  if (cause == ProgramCause::unknown) return;
  // Of a mean over samples and one over something that ranks have equally many of.
  if (cause == ProgramCause::function_of_mean && is_addition(drilled.place.function)) return;
  wrong->cause = cause;
  wrong->words += words_of_operator(drilled, cause);
}

}  // namespace

ProgramFinding with_cause(const DrillFinding& drilled, const ProgramStep& of_rank_0,
                          ProgramFinding wrong) {
  // A term that is but a multiple of the others scales all gradients alike.
  const bool of_term =
      wrong.cause == ProgramCause::scaled_by_ranks && drilled.summed_term &&
      cause_of_term(*drilled.summed_term, drilled.takes_sums) != ProgramCause::unknown;
  const bool unknown = wrong.cause == ProgramCause::unknown || of_term;
  if (!of_term && !wrong.times_ranks && wrong.cause == ProgramCause::scaled_by_ranks &&
      is_function_of_means(drilled) && !is_product(drilled.place.function)) {
    wrong.cause = ProgramCause::function_of_mean;
  } else if (drilled.limited && (unknown || wrong.cause == ProgramCause::local_batch_norm)) {
    wrong.cause = ProgramCause::clipped_before_sum;
    wrong.words += fmt::format(
        "; each rank limited the norm of its own gradients to {:.4g}: they are scaled by {:.4g}",
        drilled.limited->limit, fmt::join(drilled.limited->factors, ", "));
  } else if (unknown && drilled.limited_each) {
    wrong.cause = ProgramCause::clipped_before_sum;
    wrong.words +=
        fmt::format("; each rank limited the norm of each parameter's own gradient to {:.4g}",
                    *drilled.limited_each);
  } else if (!drilled.weights.empty() && (unknown || wrong.cause == ProgramCause::uneven_batches)) {
    if (unknown) wrong.cause = cause_of_weights(drilled);
    wrong.words += fmt::format("; one device's gradient is that of the ranks, weighted {:.3g}",
                               fmt::join(drilled.weights, ", "));
    if (wrong.cause == ProgramCause::loss_scaled_apart)
      wrong.words += multiples_text(drilled.weights);
    else if (wrong.cause == ProgramCause::own_batch)
      wrong.words += words_of_operator(drilled, wrong.cause);
  } else if (unknown && !drilled.changed_apart.empty()) {
    wrong.cause = ProgramCause::own_weights;
    wrong.words += fmt::format("; {} differs between ranks there", drilled.changed_apart);
  } else if (unknown) {
    wrong.cause = drilled.stage == DrillStage::update ? cause_of_update(drilled, of_rank_0)
                                                      : cause_of_operator(drilled, of_rank_0);
    wrong.words += words_of_operator(drilled, wrong.cause);
    if (wrong.cause == ProgramCause::unknown) take_branch(drilled, &wrong);
  } else if (wrong.cause == ProgramCause::uneven_batches) {
    take_other_than_uneven(drilled, of_rank_0, &wrong);
  }
  return wrong;
}

}  // namespace lockstep
