#include "sim/tools/program/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/judge/rank_view.h"
#include "sim/tools/program/judge_alone.h"
#include "sim/tools/program/judge_averaging.h"
#include "sim/tools/program/judge_causes.h"
#include "sim/tools/program/judge_counts.h"
#include "sim/tools/program/judge_evidence.h"
#include "sim/tools/program/judge_groups.h"
#include "sim/tools/program/judge_inputs.h"
#include "sim/tools/program/judge_lists.h"
#include "sim/tools/program/judge_names.h"
#include "sim/tools/program/judge_order.h"
#include "sim/tools/program/judge_parts.h"
#include "sim/tools/program/judge_shards.h"
#include "sim/tools/program/judge_update.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// A gradient that small beside the largest one of its step is rounding, and so is what Adam makes
// of it.
constexpr double kNoise = 1e-10;

// What no computation in fewer bits makes of a gradient that large beside the largest one.
constexpr double kClearlyApart = 1e-3, kNoSmall = 1e-2;

constexpr const char* kOtherParameters =
    "ranks update different parameters: sharded, or a pipeline";

bool finite(const ProgramStep& step) {
  return std::all_of(step.params.begin(), step.params.end(), [](const Sketch& s) { return !!s; });
}

// Why these facts cannot be compared at all, or nothing.
std::string unfit(const Ranks& ranks) {
  for (const ProgramRank& rank : ranks) {
    if (!rank.ended) return fmt::format("rank {} left no whole recording", rank.rank);
    if (rank.flat_shards)
      return "its parameters are flat shards of FullyShardedDataParallel, which cannot be compared "
             "(those of fully_shard can)";
    for (const ProgramStep& step : rank.steps)
      if (!finite(step))
        return fmt::format("rank {} has parameters that are not finite", rank.rank);
  }
  return "";
}

// Who stands against most ranks. Where no bits are those of most, as of two ranks, nobody is named.
std::string who_differs(const Ranks& ranks, size_t step, const std::string& parameter) {
  const auto bits = [&](const ProgramRank& rank) {
    const ProgramStep& own = rank.steps[step];
    const auto at = std::find(own.names.begin(), own.names.end(), parameter);
    return at == own.names.end() ? own.state_hash
                                 : own.param_hashes[static_cast<size_t>(at - own.names.begin())];
  };
  for (const ProgramRank& candidate : ranks) {
    std::vector<int64_t> others;
    for (const ProgramRank& rank : ranks)
      if (bits(rank) != bits(candidate)) others.push_back(rank.rank);
    if (2 * others.size() < ranks.size())
      return fmt::format("{} {} from the other ranks", ranks_text(others),
                         others.size() == 1 ? "differs" : "differ");
  }
  std::vector<int64_t> all;
  for (const ProgramRank& rank : ranks) all.push_back(rank.rank);
  return fmt::format("{} differ", ranks_text(all));
}

ProgramFinding replica_failure(const Ranks& ranks, const ProgramRank& rank, size_t step,
                               const std::string& entry, const std::string& parameter) {
  const ProgramRank& first = ranks[0];
  const ProgramStep &a = first.steps[step], &b = rank.steps[step];
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.step = static_cast<int64_t>(step + 1);
  found.entry = entry;
  found.line = a.line;
  found.cause = replica_cause(first, rank, step, parameter);
  found.words = fmt::format("{}; gradients {}", who_differs(ranks, step, parameter),
                            a.grad_hashes != b.grad_hashes ? "differ, too" : "agree");
  take_groups(ranks, step, parameter, &found);
  if (found.cause == ProgramCause::different_start && never_reduces(ranks)) {
    found.cause = ProgramCause::not_reduced;
    found.words += "; ranks start from different weights as well";
  }
  if (found.cause == ProgramCause::other_options)
    found.words += "; " + other_option(a, b, parameter, fmt::format("on rank {}", rank.rank));
  if (const auto shards = shards_without_gradients(ranks, step)) {
    found.cause = shards->cause;
    found.words = fmt::format("{}; {}", who_differs(ranks, step, parameter), shards->words);
  }
  return found;
}

// Of ranks that mean to differ nothing can be told.
ProgramFinding unless_meant(const Ranks& ranks, const ProgramFinding& found) {
  if (found.verdict != Verdict::fail) return found;
  std::string why = averaged_parameters(ranks);
  if (why.empty()) why = parts_of_one_model(ranks);
  if (why.empty()) why = owners_of_parameters(ranks);
  if (why.empty()) why = trainings_of_their_own(ranks);
  return why.empty() ? found : inconclusive(why);
}

std::string first_difference(const ProgramStep& a, const ProgramStep& b, std::string* of) {
  for (size_t i = 0; i < a.names.size(); ++i) {
    if (a.param_hashes[i] == b.param_hashes[i]) continue;
    *of = a.names[i];
    return parameter_of(a, i);
  }
  // Where each rank keeps the state of parameters of its own, there is nothing to compare.
  if (a.state_hash != b.state_hash && a.state_keys == b.state_keys) return "optimizer state";
  return "";
}

// Why a distance says nothing about the synchronization, or nothing.
std::string undecidable(const Ranks& ranks, const ProgramRank& one, size_t step, double off) {
  if (off < kProgramFailure)
    return fmt::format(
        "distance {:.2g}: too large for rounding in double, too small for a mistake; something "
        "of the program computes in fewer bits, or nearly hides a factor (clipping by a norm does)",
        off);
  if (ranks[0].draws || one.draws)
    return "its forward draws random numbers, which differ between several ranks and one device";
  if (one.steps[step].samples.empty() && !are_times_ranks(ranks, one, step))
    return fmt::format(
        "distance {:.2g}, but it is unknown which samples it comes from: no forward of a "
        "model with parameters was seen",
        off);
  return "";
}

// Random numbers may explain a difference that no fact but numbers tells of; not a factor that is
// the number of ranks.
ProgramFinding unless_drawn(const Ranks& ranks, const ProgramRank& one, size_t step,
                            const ProgramFinding& found) {
  const bool of_numbers = found.cause == ProgramCause::unknown ||
                          found.cause == ProgramCause::gathered_as_constants ||
                          found.cause == ProgramCause::scaled_by_ranks;
  if (found.verdict != Verdict::fail || !of_numbers || are_times_ranks(ranks, one, step) ||
      !draw_apart_for_loss(ranks, one, step))
    return found;
  return excused(found,
                 "the loss is computed after random draws outside the model's forward, which "
                 "differ between several ranks and one device");
}

ProgramFinding gradient_failure(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i,
                                double off) {
  const ProgramStep& a = ranks[0].steps[step];
  const auto number = static_cast<int64_t>(step + 1);
  const auto own = [&](size_t rank) { return ranks[rank].steps[step].samples; };
  const auto loaded = [&](size_t rank) { return ranks[rank].steps[step].loaded; };
  if (const std::string why = undecidable(ranks, one, step, off); !why.empty())
    return inconclusive(fmt::format("step {}, gradient of {}: {}", number, a.names[i], why),
                        number);
  if (const auto written = judge_written_numbers(ranks, one, step, i)) return *written;
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.step = number;
  found.line = a.line;
  found.entry = "gradient of " + a.names[i];
  found.words = fmt::format("distance {:.2g}, {:.6g} times that of one device", off,
                            sketch_ratio(a.grads[i], one.steps[step].grads[i]));
  if (have_its_samples(ranks, one, step)) {
    found.cause = gradient_cause(ranks, one, step, i);
    take_evidence(ranks, one, step, i, &found);
    take_groups(ranks, step, a.names[i], &found);
    if (const auto shards = judge_shards(ranks, one, step)) {
      found.cause = shards->cause;
      found.words += "; " + shards->words;
    }
    found.times_ranks =
        found.cause == ProgramCause::scaled_by_ranks && are_times_ranks(ranks, one, step);
    return unless_drawn(ranks, one, step, found);
  } else if (ranks.size() > 1 && !own(0).empty() && own(0) == own(1) && loaded(0) == loaded(1)) {
    found.cause = ProgramCause::same_samples;
    found.entry = "sample order";
    found.words = "ranks 0 and 1 trained on the same samples";
  } else {
    found = inconclusive(
        fmt::format("step {}: the ranks' samples are not the batch of one device ({})", number,
                    have_others_drawn(ranks, one, step)
                        ? "random numbers are drawn when they are loaded"
                        : "a padded or short last batch, a shuffle that differs, a program that "
                          "shards by hand"),
        number);
    found.other_data = true;
    found.same_loaded = dealt_alike(ranks, one, step);
    if (found.same_loaded) return judge_statistics(ranks).value_or(found);
  }
  return found;
}

// Gradients that ranks sum within the optimizer's step are found as each rank's own: what it leaves
// tells, and which samples it is of.
ProgramFinding within_step_failure(const Ranks& ranks, const ProgramRank& one, size_t step,
                                   size_t i, double off) {
  ProgramFinding found = gradient_failure(ranks, one, step, i, off);
  if (found.verdict != Verdict::fail || found.cause == ProgramCause::same_samples) return found;
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  found.entry = parameter_of(a, i);
  found.cause = cause_of_options(a, b, a.names[i]);
  found.words = fmt::format(
      "distance {:.2g}; ranks exchange gradients within the optimizer's step, so the inputs of the "
      "update are unknown",
      off);
  return found;
}

// Of an update by hand the weights decide, since a script may divide what was summed while it uses
// it; where they are wrong, the gradients tell why. Nothing: they agree, or it is an optimizer's.
std::optional<ProgramFinding> by_hand_failure(const Ranks& ranks, const ProgramRank& one,
                                              size_t step, size_t i, double off, double floor) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  if (!a.by_hand || gradients_fit(ranks, one, step)) return std::nullopt;
  if (!have_its_samples(ranks, one, step)) return gradient_failure(ranks, one, step, i, off);
  const double of_gradient = sketch_distance(a.grads[i], b.grads[i], floor);
  if (!(of_gradient > kProgramBound)) return std::nullopt;
  return gradient_failure(ranks, one, step, i, of_gradient);
}

// Where nothing at all is left on either side, an update is exact.
bool is_rounding(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i) {
  const auto norm = [&](const ProgramRank& rank) {
    const Sketch& own = gradients_found(rank.steps[step])[i];
    return own ? (*own)[4] : 0;
  };
  const auto bound = [&](const ProgramRank& rank) {
    return kNoise * largest_norm(gradients_found(rank.steps[step]));
  };
  if (!gradients_found(one.steps[step])[i] || norm(one) > bound(one)) return false;
  return norm(one) > 0 || std::any_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
           return norm(rank) > 0 && norm(rank) <= std::max(bound(rank), bound(one));
         });
}

// Which of these distances decides: the first one beyond the bound, unless that may be fewer bits
// and another one cannot, of a gradient that is no small one.
std::optional<size_t> deciding(const std::vector<double>& distances, const ProgramStep& one) {
  const auto beyond = [&](double bound, double norm) -> std::optional<size_t> {
    for (size_t i = 0; i < distances.size(); ++i) {
      const Sketch& gradient = gradients_found(one)[i];
      if (distances[i] > bound && (norm == 0 || (gradient && gradient->back() >= norm))) return i;
    }
    return std::nullopt;
  };
  const auto first = beyond(kProgramBound, 0);
  if (!first || distances[*first] >= kProgramFailure) return first;
  const auto clear = beyond(kClearlyApart, kNoSmall * largest_norm(gradients_found(one)));
  return clear ? clear : first;
}

// Of gradients; none where the weights decide.
std::vector<double> gradients_apart(const ProgramStep& a, const ProgramStep& b, double floor) {
  std::vector<double> found(a.names.size(), 0.0);
  if (a.within_step > 0 || a.by_hand) return found;
  for (size_t i = 0; i < found.size(); ++i)
    found[i] = sketch_distance(a.grads[i], b.grads[i], floor);
  return found;
}

double largest(const std::vector<double>& distances) {
  return distances.empty() ? 0 : *std::max_element(distances.begin(), distances.end());
}

// Compares one step; `noisy` collects parameters whose gradient was once rounding alone.
ProgramFinding compare_step(const Ranks& ranks, const ProgramRank& one, size_t step,
                            std::vector<char>* noisy, ProgramFinding* total) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  for (const ProgramRank& rank : ranks)
    if (rank.steps[step].names != a.names) return inconclusive(kOtherParameters);
  if (a.names != b.names || a.optimizer != b.optimizer)
    return inconclusive(fmt::format("step {}: one device updates other parameters", step + 1));
  noisy->resize(std::max(noisy->size(), a.names.size()), 0);
  const double floor = largest_norm(b.grads) * 1e-4;
  for (size_t i = 0; i < a.names.size(); ++i)
    if (is_rounding(ranks, one, step, i)) (*noisy)[i] = 1;
  std::vector<double> apart = gradients_apart(a, b, floor);
  if (const auto i = deciding(apart, b))
    return judge_clipped(ranks, one, step, *i, apart[*i])
        .value_or(gradient_failure(ranks, one, step, *i, apart[*i]));
  total->worst = std::max(total->worst, largest(apart));
  for (size_t i = 0; i < a.names.size(); ++i) {
    apart[i] = (*noisy)[i] ? 0 : sketch_distance(a.params[i], b.params[i], 0);
    if ((*noisy)[i]) ++total->skipped;
  }
  if (const auto i = deciding(apart, b)) {
    if (a.within_step > 0) return within_step_failure(ranks, one, step, *i, apart[*i]);
    return by_hand_failure(ranks, one, step, *i, apart[*i], floor)
        .value_or(judge_update(ranks, one, step, *i, apart[*i]));
  }
  total->worst = std::max(total->worst, largest(apart));
  return {};
}

// The first steps were made from other weights.
ProgramFinding other_start(const Ranks& ranks, const ProgramRank& one) {
  const ProgramRank& first = ranks[0];
  if (const std::string parts = parts_of_one_model(ranks); !parts.empty())
    return inconclusive(parts);
  if (one.steps[0].model_loads > first.steps[0].model_loads) return inconclusive(kResumedOfRanks);
  ProgramFinding found = inconclusive(
      "one device starts from other weights: seed the program before the model, or give --seed");
  found.other_data = true;
  return found;
}

// Dropout is off in the lane: that one rank would have none is told by its calls.
ProgramFinding other_modes(const Ranks& ranks, size_t steps) {
  for (size_t step = 0; step < steps; ++step)
    for (const ProgramRank& rank : ranks) {
      const ProgramStep &a = ranks[0].steps[step], &b = rank.steps[step];
      if ((a.dropouts == 0) == (b.dropouts == 0) || a.forwards != b.forwards) continue;
      ProgramFinding found;
      found.verdict = Verdict::fail;
      found.cause = ProgramCause::other_mode;
      found.step = static_cast<int64_t>(step + 1);
      found.entry = "dropout";
      found.line = a.line;
      found.words = fmt::format("rank 0 called {} active ones in the step's forwards, rank {} {}",
                                a.dropouts, rank.rank, b.dropouts);
      return found;
    }
  return {};
}

// Not once a number that tells one training from another.
bool no_gradients(const ProgramRank& rank) {
  return std::all_of(rank.steps.begin(), rank.steps.end(),
                     [](const ProgramStep& step) { return largest_norm(step.grads) == 0; });
}

std::string without_gradients(const ProgramRank& rank) {
  const auto has_none = [](const ProgramStep& step) {
    return std::none_of(step.grads.begin(), step.grads.end(), [](const Sketch& s) { return !!s; });
  };
  if (std::all_of(rank.steps.begin(), rank.steps.end(), has_none))
    return "no parameter of the optimizer has a gradient at any step: check that it was built from "
           "the parameters of the trained model, and that zero_grad() is not called between "
           "backward and step";
  return "every gradient is zero when the optimizer steps, so that no mistake could be seen: is "
         "zero_grad() called between backward and step?";
}

}  // namespace

ProgramFinding inconclusive(const std::string& words, int64_t step) {
  ProgramFinding found;
  found.verdict = Verdict::inconclusive;
  found.words = words;
  found.step = step;
  return found;
}

ProgramFinding excused(const ProgramFinding& failure, const std::string& why) {
  return inconclusive(
      fmt::format("step {}, {}: {}; {}", failure.step, failure.entry, failure.words, why),
      failure.step);
}

ProgramFinding judge_replicas(const Ranks& ranks) {
  const std::string why = unfit(ranks);
  if (!why.empty()) return inconclusive(why);
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() != ranks[0].steps.size()) return judge_other_counts(ranks);
  if (ranks[0].steps.empty()) return inconclusive("no rank made an optimizer step");
  for (size_t step = 0; step < ranks[0].steps.size(); ++step) {
    for (const ProgramRank& rank : ranks) {
      const ProgramStep &a = ranks[0].steps[step], &b = rank.steps[step];
      if (a.names != b.names)
        return judge_lists(ranks, step).value_or(inconclusive(kOtherParameters));
      std::string of;
      const std::string entry = first_difference(a, b, &of);
      if (!entry.empty()) return unless_meant(ranks, replica_failure(ranks, rank, step, entry, of));
    }
  }
  if (const auto apart = judge_loss_scales(ranks)) return *apart;
  ProgramFinding found;
  found.steps = static_cast<int64_t>(ranks[0].steps.size());
  return found;
}

ProgramFinding judge_steps(const Ranks& ranks, const ProgramRank& one) {
  Ranks all = ranks;
  all.push_back(one);
  const std::string why = unfit(all);
  if (!why.empty()) return inconclusive(why);
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() != ranks[0].steps.size()) return judge_other_counts(ranks);
  if (one.steps.empty() || ranks[0].steps.empty())
    return inconclusive("no optimizer step to compare");
  const ProgramStep &first = ranks[0].steps[0], &alone = one.steps[0];
  for (size_t i = 0; i < std::min(first.before.size(), alone.before.size()); ++i)
    if (!agree(first.before[i], alone.before[i])) return other_start(ranks, one);
  ProgramFinding total;
  std::vector<char> noisy;
  const size_t steps = std::min(ranks[0].steps.size(), one.steps.size());
  for (size_t step = 0; step < steps; ++step) {
    ProgramFinding found = compare_step(ranks, one, step, &noisy, &total);
    if (found.verdict != Verdict::pass) return unless_meant(ranks, found);
  }
  if (const auto found = judge_misplaced(one)) return *found;
  if (have_the_same_samples(ranks)) {
    ProgramFinding same = inconclusive("all ranks trained on the same samples, as one device did");
    same.cause = ProgramCause::same_samples;
    same.entry = "samples";
    return same;
  }
  if (ProgramFinding found = other_modes(ranks, steps); found.verdict != Verdict::pass)
    return found;
  if (no_gradients(ranks[0]) && no_gradients(one)) return inconclusive(without_gradients(one));
  if (ranks[0].steps.size() != one.steps.size())
    return inconclusive(fmt::format("{} steps on {} ranks, {} on one device; the first {} agree",
                                    ranks[0].steps.size(), ranks.size(), one.steps.size(), steps));
  total.steps = static_cast<int64_t>(steps);
  return total;
}

ProgramFinding judge_one_device(const Ranks& ranks, const ProgramRank& one) {
  const std::optional<ProgramRank> renamed = with_names_of(ranks, one);
  const std::optional<ByUpdates> by_hand = with_updates(ranks, renamed ? *renamed : one);
  ProgramFinding found = by_hand ? judge_steps(by_hand->ranks, by_hand->one)
                                 : judge_steps(ranks, renamed ? *renamed : one);
  if (found.verdict != Verdict::pass) return found;
  const ProgramFinding order = judge_order(ranks);
  return order.verdict == Verdict::pass ? found : order;
}

ProgramFinding judge_broken_off(const Ranks& ranks) {
  for (const ProgramRank& rank : ranks) {
    if (!rank.ended || !rank.refused || rank.steps.empty()) continue;
    const ProgramStep& last = rank.steps.back();
    const std::vector<std::string>& missing = !last.unused.empty()     ? last.unused
                                              : !last.refrozen.empty() ? last.refrozen
                                                                       : last.replaced;
    if (missing.empty()) continue;
    ProgramFinding found;
    found.verdict = Verdict::fail;
    found.cause = holds(last.replaced, missing[0])           ? ProgramCause::parameter_replaced
                  : loses_gradients_in_gather(last, missing) ? ProgramCause::gathered_as_constants
                  : last.unused.empty()                      ? ProgramCause::frozen_after_ddp
                                                             : ProgramCause::unused_parameter;
    found.step = static_cast<int64_t>(rank.steps.size());
    found.entry = "gradient of " + missing[0];
    found.line = last.line;
    found.words = fmt::format(
        "on rank {} {} parameters had no gradient, and DistributedDataParallel refused the next "
        "forward",
        rank.rank, missing.size());
    return found;
  }
  return {};
}

}  // namespace lockstep
