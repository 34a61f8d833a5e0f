#include "sim/tools/program/judge_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/text.h"

namespace lockstep {
namespace {

ProgramFinding run_finding(ProgramCause cause, const std::string& words) {
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.cause = cause;
  found.entry = "sample order";
  found.words = words;
  return found;
}

// The first step of the loader's iteration in which `step` is.
size_t iteration_start(const ProgramRank& rank, size_t step) {
  while (step > 0 && rank.steps[step - 1].position < rank.steps[step].position) --step;
  return step;
}

// Samples of both parts of an epoch that was interrupted before this step, if neither has one
// twice.
size_t trained_again(const ProgramRank& rank, size_t step) {
  std::set<std::string> before, after;
  for (size_t at = iteration_start(rank, step - 1); at < step; ++at)
    for (const std::string& sample : rank.steps[at].samples)
      if (!before.insert(sample).second) return 0;
  size_t again = 0;
  for (size_t at = step; at < rank.steps.size(); ++at) {
    if (at > step && rank.steps[at].position <= rank.steps[at - 1].position) break;
    for (const std::string& sample : rank.steps[at].samples) {
      if (!after.insert(sample).second) return 0;
      again += before.contains(sample);
    }
  }
  return again;
}

// An optimizer was loaded, as many batches were skipped as had been trained, and they were others.
ProgramFinding skipped_others(const ProgramRank& rank, size_t step) {
  const ProgramStep &last = rank.steps[step - 1], &now = rank.steps[step];
  if (now.position != last.position + 1) return {};
  const size_t again = trained_again(rank, step);
  if (again == 0) return {};
  ProgramFinding found =
      run_finding(ProgramCause::loader_state_lost,
                  fmt::format("after {} of {} batches a state was loaded and the same number of "
                              "batches was skipped, but "
                              "{} trained samples came again: the order had changed",
                              last.position, last.batches, again));
  found.step = static_cast<int64_t>(step + 1);
  found.line = now.line;
  return found;
}

// An optimizer was loaded, and the epoch under way began anew with the samples it had begun with.
ProgramFinding lost_position(const ProgramRank& rank) {
  for (size_t step = 1; step < rank.steps.size(); ++step) {
    const ProgramStep &last = rank.steps[step - 1], &now = rank.steps[step];
    if (now.optimizer_loads == last.optimizer_loads || now.samples.empty()) continue;
    if (last.position >= last.batches) continue;
    if (ProgramFinding found = skipped_others(rank, step); found.verdict != Verdict::pass)
      return found;
    if (now.position > last.position) continue;
    if (rank.steps[iteration_start(rank, step - 1)].samples != now.samples) continue;
    ProgramFinding found = run_finding(
        ProgramCause::loader_state_lost,
        fmt::format("after {} of {} batches a state was loaded, and the first ones came again",
                    last.position, last.batches));
    found.step = static_cast<int64_t>(step + 1);
    found.line = now.line;
    return found;
  }
  return {};
}

// How many replicas a sampler dealt to that no rank was; 0: none.
size_t without_ranks(const std::vector<ProgramRank>& ranks) {
  std::set<int64_t> dealt;
  for (const ProgramRank& rank : ranks)
    dealt.insert(rank.replicas_dealt.begin(), rank.replicas_dealt.end());
  const auto replicas = static_cast<size_t>(ranks[0].replicas);
  return replicas > ranks.size() && dealt.size() < replicas ? replicas - dealt.size() : 0;
}

// The first rank, and the place in a list of facts, whose fact is not that of rank 0 there.
std::optional<std::pair<const ProgramRank*, size_t>> first_other(
    const std::vector<ProgramRank>& ranks, std::vector<std::string> ProgramRank::*facts) {
  const std::vector<std::string>& of_0 = ranks[0].*facts;
  for (const ProgramRank& rank : ranks)
    for (size_t i = 0; i < std::min((rank.*facts).size(), of_0.size()); ++i)
      if ((rank.*facts)[i] != of_0[i]) return {{&rank, i}};
  return std::nullopt;
}

ProgramFinding judge_deals(const std::vector<ProgramRank>& ranks) {
  if (const auto other = first_other(ranks, &ProgramRank::shuffles)) {
    const auto& [rank, i] = *other;
    return run_finding(
        ProgramCause::other_shuffles,
        fmt::format("DistributedSampler shuffles by {} on rank 0, by {} on rank {}",
                    printable(ranks[0].shuffles[i]), printable(rank->shuffles[i]), rank->rank));
  }
  if (const auto other = first_other(ranks, &ProgramRank::splits))
    return run_finding(
        ProgramCause::other_splits,
        fmt::format(
            "DistributedSampler deals from a Subset whose indices differ between ranks 0 and {}",
            other->first->rank));
  return {};
}

}  // namespace

ProgramFinding judge_order(const std::vector<ProgramRank>& ranks) {
  const ProgramRank& rank = ranks[0];
  ProgramFinding found = lost_position(rank);
  if (found.verdict != Verdict::pass) return found;
  if (rank.stale_epochs > 0)
    return run_finding(
        ProgramCause::epoch_never_set,
        fmt::format("DistributedSampler shuffled {} {} for an epoch that was dealt already",
                    rank.stale_epochs, plural(rank.stale_epochs, "time")));
  if (ProgramFinding dealt = judge_deals(ranks); dealt.verdict != Verdict::pass) return dealt;
  if (const size_t without = without_ranks(ranks); without > 0)
    return run_finding(
        ProgramCause::other_replicas,
        fmt::format("DistributedSampler deals to {} replicas, {} of which are not ranks",
                    rank.replicas, without));
  if (rank.padded == 0) return {};
  found.verdict = Verdict::inconclusive;
  found.words = fmt::format(
      "all steps agree with one device that is given the {} repeated samples twice", rank.padded);
  found.cause = ProgramCause::padded_samples;
  found.entry = "samples";
  return found;
}

}  // namespace lockstep
