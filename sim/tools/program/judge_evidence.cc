#include "sim/tools/program/judge_evidence.h"

#include <fmt/format.h>

#include <cmath>

#include "sim/tools/program/judge_penalty.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

// Of its gradients, since backward; 0: there is none.
double constant_divisor(const ProgramRank& one, size_t step, const std::string& parameter) {
  for (const HookedGradient& own : one.steps[step].multiplied)
    if (own.name == parameter && own.factor && *own.factor > 0) return 1 / *own.factor;
  return 0;
}

}  // namespace

bool divides_by_constant(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step,
                         size_t i) {
  const auto world = static_cast<double>(ranks.size());
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  const auto near = [](double x, double y) { return std::abs(x / y - 1) < kProgramRatioBound; };
  return near(constant_divisor(one, step, a.names[i]), world) &&
         near(sketch_ratio(a.grads[i], b.grads[i]), world);
}

void take_evidence(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step,
                   size_t i, ProgramFinding* found) {
  const double divisor = constant_divisor(one, step, ranks[0].steps[step].names[i]);
  if (found->cause == ProgramCause::not_divided && divisor > 0)
    found->words += fmt::format("; one device divides by {:.6g}, too", divisor);
  if (found->cause != ProgramCause::unknown && found->cause != ProgramCause::changed_before_sum)
    return;
  if (const auto penalty = penalty_apart(ranks, one, step)) {
    found->cause = ProgramCause::penalty_scaled;
    found->words += fmt::format("; what is too much is {:.6g} times the parameters", *penalty);
  }
}

}  // namespace lockstep
