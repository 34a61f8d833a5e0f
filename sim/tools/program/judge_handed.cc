#include <fmt/format.h>

#include <algorithm>

#include "sim/tools/program/judge.h"

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
      return true;
    default:
      return false;
  }
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
    found.words += "; nor can one device be handed the ranks' data: " + why;
    return found;
  }
  ProgramFinding with = judge_one_device(ranks, one);
  if (with.cause == ProgramCause::padded_samples) with = judge_steps(ranks, one);
  const bool passes = with.verdict == Verdict::pass;
  if (one.scale_known && (passes || is_certain(with.cause))) return with;
  found.words += "; with the ranks' data handed to one device, ";
  found.words += passes ? fmt::format("{} steps agree", with.steps) : with.words;
  if (!one.scale_known)
    found.words +=
        ", but its loss is computed on after a loss of torch's or a model made it, perhaps with a "
        "number of samples that is not that of the larger batch";
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
