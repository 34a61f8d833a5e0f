#include "sim/tools/program/judge_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/tools/program/judge_penalty.h"
#include "sim/tools/program/judge_shards.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

using Ranks = std::vector<ProgramRank>;

// Of its gradients, since backward; 0: there is none.
double constant_divisor(const ProgramRank& one, size_t step, const std::string& parameter) {
  for (const HookedGradient& own : one.steps[step].multiplied)
    if (own.name == parameter && own.factor && *own.factor > 0) return 1 / *own.factor;
  return 0;
}

bool within_ratio(double x, double y) { return std::abs(x / y - 1) < kProgramRatioBound; }

// One device divides its gradient by the number of ranks as well, which it does not have, so that
// those of the ranks, which are as many times larger, are what is due.
bool divides_by_constant(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i) {
  const auto world = static_cast<double>(ranks.size());
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  return within_ratio(constant_divisor(one, step, a.names[i]), world) &&
         within_ratio(sketch_ratio(a.grads[i], b.grads[i]), world);
}

// A sum over samples that is divided by a number of them: right on the ranks, and one device, which
// has the samples of all, divides by the same.
bool sums_over_constant(const Ranks& ranks, const ProgramRank& one, size_t step, size_t i) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  const auto world = static_cast<double>(ranks.size());
  const auto is_mean = [&](const ProgramRank& rank) {
    const ProgramStep& own = rank.steps[step];
    return within_ratio(own.sum_scale * static_cast<double>(own.samples.size()), 1);
  };
  return a.sum_scale != 0 && within_ratio(b.sum_scale, a.sum_scale) &&
         std::all_of(ranks.begin(), ranks.end(), is_mean) &&
         within_ratio(sketch_ratio(a.grads[i], b.grads[i]), 1 / world);
}

}  // namespace

std::optional<ProgramFinding> judge_written_numbers(const Ranks& ranks, const ProgramRank& one,
                                                    size_t step, size_t i) {
  const auto number = static_cast<int64_t>(step + 1);
  if (divides_by_constant(ranks, one, step, i))
    return inconclusive(
        fmt::format("step {}: one device divides its gradients by {} as well, which seems to be "
                    "hard-coded in the script: take it from torch.distributed.get_world_size()",
                    number, ranks.size()),
        number);
  if (!sums_over_constant(ranks, one, step, i)) return std::nullopt;
  ProgramFinding found = inconclusive(
      fmt::format("step {}: the loss is a sum over samples divided by {:g}, a rank's number of "
                  "samples, and one device, which has those of all ranks, divides by it, too; it "
                  "seems to be hard-coded in the script: divide by len() of the batch",
                  number, 1 / ranks[0].steps[step].sum_scale),
      number);
  found.written_batch = true;
  return found;
}

void take_evidence(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step,
                   size_t i, ProgramFinding* found) {
  const double divisor = constant_divisor(one, step, ranks[0].steps[step].names[i]);
  if (found->cause == ProgramCause::not_divided && divisor > 0)
    found->words += fmt::format("; one device divides by {:.6g}, too", divisor);
  if (found->cause != ProgramCause::unknown && found->cause != ProgramCause::changed_before_sum)
    return;
  if (const auto parts = judge_owned_parts(ranks, one, step)) {
    found->cause = parts->cause;
    found->words += "; " + parts->words;
    return;
  }
  if (const auto penalty = penalty_apart(ranks, one, step)) {
    found->cause = ProgramCause::penalty_scaled;
    found->words += fmt::format("; the excess is {:.6g} times the parameters", *penalty);
  }
}

}  // namespace lockstep
