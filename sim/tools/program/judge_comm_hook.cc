#include "sim/tools/program/judge_comm_hook.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

struct HookMeasure {
  const char* name;
  std::optional<double> bound;
  double HookedBuckets::*value;
};

std::vector<HookMeasure> measures_of(const HookBound& bound) {
  return {{"error", bound.error, &HookedBuckets::error},
          {"owed", bound.owed, &HookedBuckets::owed}};
}

double worst_of(const ProgramRank& rank, double HookedBuckets::*value) {
  double worst = 0;
  for (const ProgramStep& step : rank.steps)
    if (step.comm_hook) worst = std::max(worst, step.comm_hook.value().*value);
  return worst;
}

ProgramFinding wrong_in(const ProgramStep& step, int64_t number, ProgramCause cause,
                        std::string words) {
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.cause = cause;
  found.step = number;
  found.entry = "result of the comm hook";
  found.line = step.line;
  found.words = std::move(words);
  return found;
}

// Of ranks of which some made other steps; empty: all made as many.
std::string other_counts(const Ranks& ranks) {
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() != ranks[0].steps.size())
      return fmt::format("rank {} made {} steps, rank 0 made {}", rank.rank, rank.steps.size(),
                         ranks[0].steps.size());
  return "";
}

// Of a step in which the hooks of some ranks alone were called; empty: those of all, or of none.
std::string not_on_all(const Ranks& ranks, size_t step) {
  for (const ProgramRank& rank : ranks)
    if (rank.steps[step].comm_hook.has_value() != ranks[0].steps[step].comm_hook.has_value())
      return fmt::format("in step {} the comm hook was called on rank {} but not on another rank",
                         step + 1, ranks[0].steps[step].comm_hook ? 0 : rank.rank);
  return "";
}

// Of one step that all ranks measured.
std::optional<ProgramFinding> wrong_step(const Ranks& ranks, size_t step, const HookBound& bound) {
  const ProgramStep& first = ranks[0].steps[step];
  const auto number = static_cast<int64_t>(step + 1);
  for (const ProgramRank& rank : ranks)
    if (rank.steps[step].comm_hook->hash != first.comm_hook->hash)
      return wrong_in(first, number, ProgramCause::hook_results_differ,
                      fmt::format("rank {} has another result than rank 0", rank.rank));
  for (const HookMeasure& measure : measures_of(bound)) {
    const double value = first.comm_hook.value().*measure.value;
    if (measure.bound && !(value <= *measure.bound))
      return wrong_in(first, number, ProgramCause::hook_beyond_bound,
                      fmt::format("{} {:.3g} of the norm of the mean gradient, bound {:g}",
                                  measure.name, value, *measure.bound));
  }
  return std::nullopt;
}

// "error 0.01 of the norm of the mean gradient at most, bound 0.05"
std::string passed_words(const ProgramRank& rank, const HookBound& bound) {
  std::vector<std::string> words;
  for (const HookMeasure& measure : measures_of(bound))
    if (measure.bound)
      words.push_back(fmt::format("{} {:.3g} of the norm of the mean gradient at most, bound {:g}",
                                  measure.name, worst_of(rank, measure.value), *measure.bound));
  return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace

ProgramFinding judge_comm_hook(const Ranks& ranks, const HookBound& bound) {
  if (const std::string why = other_counts(ranks); !why.empty()) return inconclusive(why);
  ProgramFinding found;
  for (size_t step = 0; step < ranks[0].steps.size(); ++step) {
    if (const std::string why = not_on_all(ranks, step); !why.empty()) return inconclusive(why);
    if (!ranks[0].steps[step].comm_hook) continue;
    if (auto wrong = wrong_step(ranks, step, bound)) return *wrong;
    ++found.steps;
  }
  if (found.steps == 0)
    return inconclusive("no comm hook was called: DistributedDataParallel.register_comm_hook()");
  found.words = passed_words(ranks[0], bound);
  return found;
}

bool comm_hook_control_fails(Ranks ranks, const HookBound& bound) {
  for (ProgramRank& rank : ranks)
    for (ProgramStep& step : rank.steps) {
      if (!step.comm_hook) continue;
      step.comm_hook->error = step.comm_hook->control_error;
      step.comm_hook->owed = step.comm_hook->control_owed;
    }
  return judge_comm_hook(ranks, bound).cause == ProgramCause::hook_beyond_bound;
}

std::string without_last_rank(const ProgramRank& rank) {
  return fmt::format(
      "a rank left out shows only below {:.3g} as error, below {:.3g} as owed: a wider bound "
      "proves nothing; this run has error {:.3g}, owed {:.3g}",
      worst_of(rank, &HookedBuckets::control_error), worst_of(rank, &HookedBuckets::control_owed),
      worst_of(rank, &HookedBuckets::error), worst_of(rank, &HookedBuckets::owed));
}

}  // namespace lockstep
