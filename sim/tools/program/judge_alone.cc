#include "sim/tools/program/judge_alone.h"

#include <algorithm>

#include "sim/tools/program/judge_causes.h"
#include "sim/tools/program/judge_inputs.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Of the first step, by bits where they are known.
bool all_start_apart(const Ranks& ranks) {
  const auto differs = [&](const ProgramRank& rank) {
    const ProgramStep &a = ranks[0].steps[0], &b = rank.steps[0];
    return a.before_hash.empty() || b.before_hash.empty() ? a.before != b.before
                                                          : a.before_hash != b.before_hash;
  };
  return std::all_of(ranks.begin() + 1, ranks.end(), differs);
}

bool is_left_to_each(const ProgramStep& step) {
  for (size_t i = 0; i < step.names.size(); ++i)
    if (step.grads[i] && !holds(step.unreduced, step.names[i])) return false;
  return step.ddp_forwards == 0 && step.exchanges == 0 && step.within_step == 0;
}

bool leaves_all_to_each(const ProgramRank& rank) {
  return !rank.steps.empty() && rank.broadcasts == 0 &&
         std::all_of(rank.steps.begin(), rank.steps.end(), is_left_to_each);
}

// As where a collective that is no all_reduce hands them on.
bool shares_gradients(const Ranks& ranks, size_t step) {
  const ProgramStep& first = ranks[0].steps[step];
  return std::any_of(ranks.begin() + 1, ranks.end(), [&](const ProgramRank& rank) {
    return step < rank.steps.size() && rank.steps[step].grad_hashes == first.grad_hashes;
  });
}

bool are_dealt_together(const Ranks& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const ProgramRank& rank) { return rank.replicas > 1; });
}

// From the first step on, by a rate or the like.
bool update_by_other_options(const Ranks& ranks) {
  return std::all_of(ranks.begin() + 1, ranks.end(), [&](const ProgramRank& rank) {
    return rank.steps[0].options != ranks[0].steps[0].options;
  });
}

}  // namespace

bool never_reduces(const Ranks& ranks) {
  if (ranks.size() < 2 || !std::all_of(ranks.begin(), ranks.end(), leaves_all_to_each))
    return false;
  if (!all_start_apart(ranks)) return false;
  for (size_t step = 0; step < ranks[0].steps.size(); ++step)
    if (shares_gradients(ranks, step)) return false;
  return true;
}

std::string trainings_of_their_own(const Ranks& ranks) {
  if (ranks.size() < 2 || are_dealt_together(ranks)) return "";
  if (never_reduces(ranks))
    return "ranks start from different weights and share no gradient, nor does a sampler deal them "
           "one data set: do they train models of their own (an ensemble, folds of a "
           "cross-validation), or was DistributedDataParallel forgotten?";
  const bool searches = std::all_of(ranks.begin(), ranks.end(), leaves_all_to_each) &&
                        update_by_other_options(ranks) && have_the_same_samples(ranks);
  return searches ? "ranks train on the same samples with other options and share no gradient: do "
                    "they train models of their own (a search for options), or was "
                    "DistributedDataParallel forgotten?"
                  : "";
}

}  // namespace lockstep
