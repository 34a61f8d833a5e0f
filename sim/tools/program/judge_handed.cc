#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/judge/rank_view.h"
#include "sim/tools/program/judge.h"
#include "sim/tools/program/judge_causes.h"
#include "sim/tools/program/judge_inputs.h"

namespace lockstep {
namespace {

// Mistakes that data which was not handed on cannot imitate: a factor, or the sampler, tells of
// them.
bool is_certain(ProgramCause cause) {
  switch (cause) {
    case ProgramCause::summed_loss:
    case ProgramCause::divided_twice:
    case ProgramCause::not_divided:
    case ProgramCause::accumulation_divided:
    case ProgramCause::lr_scaled:
    case ProgramCause::epoch_never_set:
    case ProgramCause::other_replicas:
    case ProgramCause::other_shuffles:
    case ProgramCause::other_splits:
      return true;
    default:
      return false;
  }
}

// Samples of a step that several ranks have, and which ranks these are.
struct Sharing {
  bool twice_on_one = false;
  size_t samples = 0, shared = 0;
  std::vector<int64_t> ranks;
};

Sharing sharing_of(const std::vector<ProgramRank>& ranks, size_t step) {
  Sharing found;
  std::map<std::string, std::set<int64_t>> owners;
  std::set<int64_t> sharers;
  for (const ProgramRank& rank : ranks)
    for (const std::string& sample : rank.steps[step].samples)
      found.twice_on_one |= !owners[sample].insert(rank.rank).second;
  found.samples = owners.size();
  for (const auto& [sample, own] : owners) {
    if (own.size() < 2) continue;
    ++found.shared;
    sharers.insert(own.begin(), own.end());
  }
  found.ranks.assign(sharers.begin(), sharers.end());
  return found;
}

ProgramFinding same_samples(const std::vector<ProgramRank>& ranks, const std::string& words) {
  ProgramFinding found;
  found.verdict = Verdict::inconclusive;
  found.cause = ProgramCause::same_samples;
  found.step = 1;
  found.entry = "samples";
  found.line = ranks[0].steps[0].line;
  found.words = "all steps agree with one device that is given the ranks' samples, but " + words;
  return found;
}

// Ranks have samples of each other in every step, and none has one twice, as it would be where the
// data repeats itself: they are dealt so. Ranks may share them on purpose, so nobody is accused.
ProgramFinding shared_in_each_step(const std::vector<ProgramRank>& ranks) {
  for (size_t step = 0; step < ranks[0].steps.size(); ++step) {
    const Sharing sharing = sharing_of(ranks, step);
    if (sharing.shared == 0 || sharing.twice_on_one) return {};
  }
  const Sharing first = sharing_of(ranks, 0);
  return same_samples(ranks,
                      fmt::format("{} share {} of {} samples in step 1, and some in each step",
                                  ranks_text(first.ranks), first.shared, first.samples));
}

// Until one has a sample again, all ranks have had the same ones, as where each shuffles all of
// them by itself.
ProgramFinding shared_in_an_epoch(const std::vector<ProgramRank>& ranks) {
  std::vector<std::set<std::string>> had(ranks.size());
  const auto come_again = [&](size_t step) {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      for (const std::string& sample : ranks[rank].steps[step].samples)
        if (had[rank].contains(sample)) return true;
    return false;
  };
  size_t step = 0;
  for (; step < ranks[0].steps.size() && !come_again(step); ++step)
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      had[rank].insert(ranks[rank].steps[step].samples.begin(),
                       ranks[rank].steps[step].samples.end());
  if (step < 2 || had[0].empty()) return {};
  for (const auto& own : had)
    if (own != had[0]) return {};
  return same_samples(
      ranks, fmt::format("each rank had the same {} in the first {} steps", had[0].size(), step));
}

ProgramFinding shared_samples(const std::vector<ProgramRank>& ranks) {
  ProgramFinding found = shared_in_each_step(ranks);
  return found.verdict == Verdict::pass ? shared_in_an_epoch(ranks) : found;
}

// What a teacher made of each rank's batch was handed to one device as well.
ProgramFinding own_frozen_models(const std::vector<ProgramRank>& ranks) {
  for (size_t step = 0; step < ranks[0].steps.size(); ++step) {
    if (!other_untrained(ranks, step)) continue;
    ProgramFinding found;
    found.verdict = Verdict::inconclusive;
    found.cause = ProgramCause::own_frozen_model;
    found.step = static_cast<int64_t>(step + 1);
    found.entry = "inputs";
    found.line = ranks[0].steps[step].line;
    found.words =
        "all steps agree with one device that is given the ranks' inputs, but a model that is not "
        "trained differs between ranks";
    return found;
  }
  return {};
}

// Loaders gave ranks and one device the same, and nobody was seen to draw.
ProgramFinding computed_of_batch(const ProgramFinding& with) {
  return inconclusive(fmt::format(
      "loaders give the ranks the samples of one device, but the forwards receive different "
      "inputs: they are computed from each rank's own batch or shard (with its mean, say), or "
      "with random draws that were not seen; with the ranks' inputs given to one device, {} "
      "steps agree",
      with.steps));
}

// Does a model that nothing trains, a teacher, compute with gradients off or on?
bool has_untrained(const std::vector<ProgramRank>& ranks) {
  return std::any_of(ranks[0].steps.begin(), ranks[0].steps.end(),
                     [](const ProgramStep& step) { return !step.untrained.empty(); });
}

// A cause that is there whatever else is, and need not be all of it.
std::string perhaps_of(const std::vector<ProgramRank>& ranks, const ProgramFinding& with) {
  const bool untrained =
      with.step > 0 && other_untrained(ranks, static_cast<size_t>(with.step - 1));
  const bool known =
      with.cause == ProgramCause::local_batch_norm || with.cause == ProgramCause::mean_of_means;
  if (!known && !untrained) return "";
  const ProgramCauseRow& row = row_of(untrained ? ProgramCause::own_frozen_model : with.cause);
  return fmt::format(", perhaps for {}: {}{}", row.name, row.meaning,
                     row.cause == ProgramCause::local_batch_norm
                         ? " (--local-batch-norm compares everything else)"
                         : "");
}

std::string step_and_entry(const ProgramFinding& with) {
  return with.step > 0 && !with.entry.empty() ? fmt::format("step {}, {}: ", with.step, with.entry)
                                              : "";
}

// The same of loaders that gave one device the batches of the ranks.
ProgramFinding recomputed(const ProgramFinding& with) {
  return inconclusive(fmt::format(
      "one device that is given the ranks' batches computes different inputs or targets from them: "
      "they are computed from each rank's own batch or shard (with its mean, say), or with "
      "random draws that were not seen; with these given to it as well, "
      "{} steps agree",
      with.steps));
}

}  // namespace

HandedWay handed_way(const ProgramRank& rank, const ProgramRank& one, int64_t world) {
  const size_t steps = std::min(rank.steps.size(), one.steps.size());
  const auto all_make = [&](int64_t times) {
    for (size_t i = 0; i < steps; ++i)
      if (one.steps[i].backwards != times * rank.steps[i].backwards) return false;
    return steps > 0;
  };
  if (all_make(1)) return HandedWay::together;
  return all_make(world) ? HandedWay::in_turn : HandedWay::none;
}

ProgramFinding judge_handed(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                            const ProgramFinding& before) {
  ProgramFinding found = before;
  if (!one.handed) {
    const std::string why =
        one.why_not_handed.empty() ? "it saw no forward of a model" : one.why_not_handed;
    found.words += "; nor can one device be given the ranks' data: " + why;
    return found;
  }
  ProgramFinding with = judge_one_device(ranks, one);
  if (with.cause == ProgramCause::padded_samples) with = judge_steps(ranks, one);
  const bool passes = with.verdict == Verdict::pass;
  if (passes && !ranks[0].steps.empty())
    if (ProgramFinding shared = shared_samples(ranks); shared.verdict != Verdict::pass)
      return shared;
  if (passes)
    if (const auto own = judge_statistics(ranks)) return *own;
  if (passes)
    if (ProgramFinding own = own_frozen_models(ranks); own.verdict != Verdict::pass) return own;
  if (passes && one.recomputed) return recomputed(with);
  if (passes && (before.same_loaded || computed_others(ranks, one))) return computed_of_batch(with);
  if (one.scale_known && (passes || with.times_ranks || is_certain(with.cause))) return with;
  found.words += "; with the ranks' data given to one device, ";
  found.words += passes ? fmt::format("{} steps agree", with.steps)
                        : step_and_entry(with) + with.words + perhaps_of(ranks, with);
  if (!passes && has_untrained(ranks))
    found.words += ", but a model that is not trained computed from its own data there";
  if (!one.scale_known)
    found.words +=
        ", but the script changes the loss after torch's loss or the model returned it, perhaps by "
        "a number of samples that is not that of the larger batch";
  return found;
}

std::optional<ProgramFinding> suspected_of_handed(const std::vector<ProgramRank>& ranks,
                                                  const ProgramRank& one) {
  if (!one.handed || !one.scale_known) return std::nullopt;
  const ProgramFinding with = judge_steps(ranks, one);
  if (with.verdict != Verdict::fail || with.cause != ProgramCause::uneven_batches)
    return std::nullopt;
  return with;
}

}  // namespace lockstep
