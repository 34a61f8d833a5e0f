#include "sim/tools/program/judge_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Of each optimizer that stepped, the parameters that its last step left.
std::map<int64_t, std::vector<std::string>> left_by_optimizers(const ProgramRank& rank) {
  std::map<int64_t, std::vector<std::string>> left;
  for (const ProgramStep& step : rank.steps) left[step.optimizer] = step.param_hashes;
  return left;
}

// A rank whose backwards were as many left out an update, and holds other weights since then.
ProgramFinding left_out(const ProgramRank& most, const ProgramRank& least) {
  if (least.steps.empty() || most.backwards != least.backwards || least.broadcasts > 0) return {};
  if (left_by_optimizers(most) == left_by_optimizers(least)) return {};
  const auto is_alike = [](const ProgramStep& a, const ProgramStep& b) {
    return a.optimizer == b.optimizer && a.backwards == b.backwards &&
           a.param_hashes == b.param_hashes;
  };
  size_t step = 0;
  while (step < least.steps.size() && is_alike(least.steps[step], most.steps[step])) ++step;
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.cause = ProgramCause::update_on_one_rank;
  found.step = static_cast<int64_t>(step + 1);
  found.entry = "optimizer";
  found.line = most.steps[step].line;
  found.words =
      fmt::format("rank {} updated {} times and rank {} {} times, after {} backwards each",
                  least.rank, least.steps.size(), most.rank, most.steps.size(), most.backwards);
  return found;
}

// Of parameters that DistributedDataParallel holds, all of them, in the steps that all ranks made:
// where some part in one of these, it is no end that comes earlier on one rank.
std::optional<ProgramFinding> parted_before(Ranks ranks, size_t steps) {
  if (steps == 0) return std::nullopt;
  for (ProgramRank& rank : ranks) rank.steps.resize(steps);
  const ProgramFinding found = judge_replicas(ranks);
  if (found.verdict != Verdict::fail || found.step == 0) return std::nullopt;
  const bool held = std::all_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    const ProgramStep& step = rank.steps[static_cast<size_t>(found.step - 1)];
    return !step.models_hash.empty() && step.unheld.empty();
  });
  return held && found.cause != ProgramCause::unknown ? std::optional(found) : std::nullopt;
}

}  // namespace

ProgramFinding judge_other_counts(const Ranks& ranks) {
  const auto steps = [](const ProgramRank& rank) { return rank.steps.size(); };
  const auto [least, most] =
      std::minmax_element(ranks.begin(), ranks.end(),
                          [&](const auto& a, const auto& b) { return steps(a) < steps(b); });
  if (ProgramFinding found = left_out(*most, *least); found.verdict != Verdict::pass) return found;
  if (steps(*least) == 0 && least->broadcasts >= static_cast<int64_t>(steps(*most)))
    return inconclusive(fmt::format(
        "rank {} never updates: does it get its parameters by broadcast? That cannot be "
        "compared",
        least->rank));
  if (steps(*least) == 0 && least->backwards > 0) {
    ProgramFinding found;
    found.verdict = Verdict::fail;
    found.cause = ProgramCause::update_on_one_rank;
    found.step = 1;
    found.entry = "optimizer";
    for (const ProgramRank& rank : ranks)
      if (!rank.steps.empty()) found.line = rank.steps.front().line;
    found.words = fmt::format("rank {} ran backward {} times and never updated", least->rank,
                              least->backwards);
    return found;
  }
  if (const auto parted = parted_before(ranks, steps(*least))) return *parted;
  return inconclusive(
      fmt::format("rank {} made {} optimizer steps, rank {} made {}: other numbers of batches, as "
                  "join() allows them, cannot be compared",
                  least->rank, steps(*least), most->rank, steps(*most)));
}

}  // namespace lockstep
