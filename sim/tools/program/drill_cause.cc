#include "sim/tools/program/drill_cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numeric>

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

// Of a loss whose scale is each rank's own (its number plus one, say) weights are shares as well,
// and add up to something else than one: that fits no known mistake.
ProgramCause cause_of(const std::vector<double>& weights) {
  const bool shares = are_shares_of_a_count(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (std::abs(sum - 1) < kProgramRatioBound)
    return shares ? ProgramCause::mean_of_means : ProgramCause::function_of_mean;
  return shares ? ProgramCause::unknown : ProgramCause::function_of_mean;
}

}  // namespace

ProgramFinding with_cause(const DrillFinding& drilled, ProgramFinding wrong) {
  const bool unknown = wrong.cause == ProgramCause::unknown;
  if (drilled.limited && (unknown || wrong.cause == ProgramCause::local_batch_norm)) {
    wrong.cause = ProgramCause::clipped_before_sum;
    wrong.words += fmt::format(
        "; each rank limited the norm of its own gradients to {:.4g}: they are scaled by {:.4g}",
        drilled.limited->limit, fmt::join(drilled.limited->factors, ", "));
  } else if (!drilled.weights.empty() && (unknown || wrong.cause == ProgramCause::uneven_batches)) {
    if (unknown) wrong.cause = cause_of(drilled.weights);
    wrong.words += fmt::format("; one device's gradient is that of the ranks, weighted {:.3g}",
                               fmt::join(drilled.weights, ", "));
  }
  return wrong;
}

}  // namespace lockstep
