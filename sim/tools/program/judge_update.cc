#include "sim/tools/program/judge_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge_causes.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Empty: not known, of an update by hand.
bool other_rate(const ProgramStep& a, const ProgramStep& b) {
  return a.lr != b.lr && !a.lr.empty() && !b.lr.empty();
}

// Of the parameter's group, unless another group's is the one that differs.
size_t group_of_rates(const ProgramStep& a, const ProgramStep& b, size_t i) {
  const auto differs = [&](size_t group) {
    return group < a.lr.size() && group < b.lr.size() && a.lr[group] != b.lr[group];
  };
  if (const size_t own = group_of(a, i); differs(own)) return own;
  for (size_t group = 0; group < a.lr.size(); ++group)
    if (differs(group)) return group;
  return 0;
}

std::string rates_text(const ProgramStep& a, const ProgramStep& b, size_t i) {
  const size_t group = group_of_rates(a, b, i);
  return fmt::format("; learning rate {:g}{}, of one device {:g}", a.lr[group],
                     a.lr.size() > 1 ? fmt::format(" in group {}", group) : "",
                     b.lr[std::min(group, b.lr.size() - 1)]);
}

// Why it says nothing, to follow "distance 0.1"; or nothing.
std::string undecided_update(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i,
                             double off) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  if (!a.grads[i] && !b.grads[i])
    return ", but it is unknown which gradient it comes from: there was none before the step";
  const bool same_options = std::all_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    return !other_options(a, rank.steps[step], a.names[i]);
  });
  if (off < kProgramFailure && same_options)
    return " while gradients agree: too large for rounding in double, too small for a mistake";
  if (b.drew_in_step && a.options == b.options && left_alike(ranks, step))
    return " while gradients agree: the update draws random numbers, which differ between several "
           "ranks and one device";
  return "";
}

bool is_along_no_gradient(const ProgramRank& rank, size_t step) {
  return step < rank.steps.size() && rank.steps[step].by_hand && rank.steps[step].lr.empty();
}

void take_updates(ProgramRank* rank, size_t step) {
  if (step >= rank->steps.size() || !rank->steps[step].by_hand) return;
  ProgramStep& own = rank->steps[step];
  own.behind_updates = std::move(own.grads);
  own.grads = own.updates;
}

// The number of ranks, or its root, where each update is that of one device, or as many times as
// large; else 0.
double factor_of_updates(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  if (!a.by_hand || !b.by_hand) return 0;
  const auto world = static_cast<double>(ranks.size());
  const auto is_times = [&](size_t of, double factor) {
    return sketch_distance(a.updates[of], scaled_by(b.updates[of], factor), 0) <=
           kProgramRatioBound;
  };
  for (const double factor : {world, std::sqrt(world), 1 / world}) {
    bool all = is_times(i, factor);
    for (size_t of = 0; of < a.names.size(); ++of) all &= is_times(of, factor) || is_times(of, 1);
    if (all) return factor;
  }
  return 0;
}

}  // namespace

const std::vector<Sketch>& gradients_found(const ProgramStep& step) {
  return step.behind_updates.empty() ? step.grads : step.behind_updates;
}

bool gradients_fit(const Ranks& ranks, const ProgramRank& one, size_t step) {
  if (step >= one.steps.size() || step >= ranks[0].steps.size()) return false;
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  if (a.names != b.names || largest_norm(b.grads) == 0) return false;
  for (const ProgramRank& rank : ranks)  // one rank's own may be that of one device's samples
    if (step >= rank.steps.size() || rank.steps[step].grad_hashes != a.grad_hashes) return false;
  for (size_t i = 0; i < a.names.size(); ++i)
    if (sketch_distance(a.grads[i], b.grads[i], largest_norm(b.grads) * 1e-4) > kProgramBound)
      return false;
  return true;
}

bool left_alike(const Ranks& ranks, size_t step) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
    return rank.steps[step].param_hashes == ranks[0].steps[step].param_hashes;
  });
}

ProgramCause cause_of_options(const ProgramStep& a, const ProgramStep& b,
                              const std::string& parameter) {
  if (other_rate(a, b)) return ProgramCause::lr_scaled;
  return other_options(a, b, parameter) ? ProgramCause::option_scaled : ProgramCause::unknown;
}

ProgramFinding judge_update(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i,
                            double off) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  if (const std::string why = undecided_update(ranks, one, step, i, off); !why.empty())
    return inconclusive(
        fmt::format("step {}, {}: distance {:.2g}{}", step + 1, parameter_of(a, i), off, why),
        static_cast<int64_t>(step + 1));
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.step = static_cast<int64_t>(step + 1);
  found.line = a.line;
  found.entry = parameter_of(a, i);
  found.cause = cause_of_options(a, b, a.names[i]);
  found.words = fmt::format("distance {:.2g} while gradients agree", off);
  for (const ProgramRank& rank : ranks) {  // their owners update shards
    if (!other_options(a, rank.steps[step], a.names[i])) continue;
    found.cause = ProgramCause::other_options;
    found.words +=
        "; " + other_option(a, rank.steps[step], a.names[i], fmt::format("on rank {}", rank.rank));
    return found;
  }
  for (const ProgramRank& rank : ranks)
    if (rank.steps[step].optimizer != a.optimizer) found.cause = ProgramCause::optimizer_made_anew;
  if (found.cause == ProgramCause::unknown)
    found.cause = left_alike(ranks, step) ? ProgramCause::other_update
                  : b.drew_in_step        ? ProgramCause::drawn_in_update
                                          : ProgramCause::unknown;
  const double factor =
      found.cause == ProgramCause::other_update ? factor_of_updates(ranks, one, step, i) : 0;
  if (factor != 0) {
    found.cause = ProgramCause::lr_scaled;
    found.words += fmt::format("; the update is {:.6g} times that of one device", factor);
  }
  if (other_rate(a, b))
    found.words += rates_text(a, b, i);
  else if (other_options(a, b, a.names[i]))
    found.words += "; " + other_option(a, b, a.names[i], "of one device");
  return found;
}

std::optional<ByUpdates> with_updates(const Ranks& ranks, const ProgramRank& one) {
  std::optional<ByUpdates> found;
  for (size_t step = 0; step < one.steps.size(); ++step) {
    const bool needed = is_along_no_gradient(one, step) ||
                        std::any_of(ranks.begin(), ranks.end(), [&](const ProgramRank& rank) {
                          return is_along_no_gradient(rank, step);
                        });
    if (!needed || gradients_fit(ranks, one, step)) continue;
    if (!found) found = ByUpdates{ranks, one};
    for (ProgramRank& rank : found->ranks) take_updates(&rank, step);
    take_updates(&found->one, step);
  }
  return found;
}

}  // namespace lockstep
