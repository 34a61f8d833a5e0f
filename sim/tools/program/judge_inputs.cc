#include "sim/tools/program/judge_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "scenarios/base/text.h"
#include "sim/tools/program/judge_causes.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

using Rows = std::vector<std::string>;

Rows all_of(const std::vector<ProgramRank>& ranks, size_t step, Rows ProgramStep::*list) {
  Rows all;
  for (const ProgramRank& rank : ranks) {
    const Rows& own = rank.steps[step].*list;
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

Rows sorted(Rows rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

// All rows that were loaded went into forwards, in whatever shape.
bool gives_all(const ProgramStep& step) {
  return !step.drew && !step.loaded.empty() && step.loaded.size() == step.samples.size();
}

}  // namespace

bool have_others_drawn(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step) {
  return !one.handed &&
         all_of(ranks, step, &ProgramStep::loaded_drawn) != sorted(one.steps[step].loaded_drawn);
}

std::optional<double> factor_of_norms(const ProgramStep& a, const ProgramStep& b) {
  if (a.norms.empty() || a.norms.size() != b.norms.size() || b.norms[0] <= 0) return std::nullopt;
  const double factor = a.norms[0] / b.norms[0];
  for (size_t i = 0; i < a.norms.size(); ++i)
    if (!(std::abs(a.norms[i] - factor * b.norms[i]) <= kProgramRatioBound * a.norms[i]))
      return std::nullopt;
  if (std::abs(factor - 1) <= kProgramFailure) return std::nullopt;
  return factor;
}

bool may_divide_by_hand(const ProgramStep& a, ProgramCause cause) {
  return cause == ProgramCause::not_divided && a.ddp_forwards == 0;
}

bool have_its_samples(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step) {
  return all_of(ranks, step, &ProgramStep::samples) == sorted(one.steps[step].samples) &&
         !have_others_drawn(ranks, one, step);
}

bool draw_apart_for_loss(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                         size_t step) {
  const std::string& own = one.steps[step].loss_draws;
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](const ProgramRank& rank) { return rank.steps[step].loss_draws != own; });
}

bool have_the_same_samples(const std::vector<ProgramRank>& ranks) {
  if (ranks.size() < 2) return false;
  for (size_t step = 0; step < ranks[0].steps.size(); ++step)
    for (const ProgramRank& rank : ranks)
      if (step >= rank.steps.size() || rank.steps[step].samples.empty() ||
          rank.steps[step].samples != ranks[0].steps[step].samples)
        return false;
  return true;
}

bool dealt_alike(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step) {
  const auto gives = [&](const ProgramRank& rank) { return gives_all(rank.steps[step]); };
  return gives(one) && !have_others_drawn(ranks, one, step) &&
         std::all_of(ranks.begin(), ranks.end(), gives) &&
         all_of(ranks, step, &ProgramStep::loaded) == sorted(one.steps[step].loaded);
}

std::optional<ProgramFinding> judge_statistics(const std::vector<ProgramRank>& ranks) {
  for (size_t step = 0; step < ranks[0].steps.size(); ++step) {
    if (!std::all_of(ranks.begin(), ranks.end(),
                     [&](const ProgramRank& rank) { return rank.steps[step].standardized; }))
      continue;
    ProgramFinding found;
    found.verdict = Verdict::fail;
    found.cause = ProgramCause::own_statistics;
    found.step = static_cast<int64_t>(step + 1);
    found.entry = "inputs";
    found.line = ranks[0].steps[step].line;
    found.words =
        "mean 0 and deviation 1 over each rank's own batch, which the loader did not give so";
    return found;
  }
  return std::nullopt;
}

bool computed_others(const std::vector<ProgramRank>& ranks, const ProgramRank& one) {
  for (size_t step = 0; step < std::min(ranks[0].steps.size(), one.steps.size()); ++step) {
    const ProgramStep& own = one.steps[step];
    if (own.drawn.size() == own.loaded.size() && dealt_alike(ranks, one, step) &&
        all_of(ranks, step, &ProgramStep::samples) != sorted(own.drawn))
      return true;
  }
  return false;
}

ProgramFinding padding_failure(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                               const ProgramFinding& before) {
  const auto step = static_cast<size_t>(before.step - 1);
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  const double floor = largest_norm(b.grads) * 1e-4;
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.cause = ProgramCause::unmasked_padding;
  found.step = before.step;
  found.line = a.line;
  for (size_t i = 0; i < a.names.size(); ++i) {
    const double off = sketch_distance(a.grads[i], b.grads[i], floor);
    if (!(off > kProgramBound)) continue;
    found.entry = "gradient of " + a.names[i];
    found.words = fmt::format("distance {:.2g}; ", off);
    break;
  }
  found.words += "ranks agree with one device once they pad their samples as it does";
  return found;
}

std::optional<ProgramFinding> judge_misplaced(const ProgramRank& one) {
  for (size_t step = 0; step < one.steps.size(); ++step) {
    const ProgramStep& own = one.steps[step];
    if (own.misplaced.empty()) continue;
    ProgramFinding found;
    found.verdict = Verdict::fail;
    found.cause = ProgramCause::misplaced_gradients;
    found.step = static_cast<int64_t>(step + 1);
    found.entry = "gradient of " + own.misplaced[0];
    found.line = own.line;
    found.words = fmt::format(
        "on one device as well, gradients of {} parameters hold each other's numbers when the "
        "optimizer steps",
        own.misplaced.size());
    return found;
  }
  return std::nullopt;
}

std::optional<ProgramFinding> judge_loss_scales(const std::vector<ProgramRank>& ranks) {
  const auto& of_0 = ranks[0].loss_scales;
  for (const ProgramRank& rank : ranks)
    for (size_t i = 0; i < std::min(rank.loss_scales.size(), of_0.size()); ++i) {
      const std::string& own = rank.loss_scales[i];
      if (own == of_0[i] || own.empty() || of_0[i].empty()) continue;
      ProgramFinding found;
      found.verdict = Verdict::fail;
      found.cause = ProgramCause::loss_scaled_apart;
      found.step = 1;
      found.line = ranks[0].steps[0].line;
      found.entry = "scale of the loss";
      found.words = fmt::format(
          "GradScaler starts with {} on rank 0 and {} on rank {}, and each divides the same "
          "average by its own scale",
          printable(of_0[i]), printable(own), rank.rank);
      return found;
    }
  return std::nullopt;
}

std::optional<ProgramFinding> judge_clipped(const std::vector<ProgramRank>& ranks,
                                            const ProgramRank& one, size_t step, size_t i,
                                            double off) {
  const ProgramStep &a = ranks[0].steps[step], &b = one.steps[step];
  const auto factor = factor_of_norms(a, b);
  if (!factor || off >= kProgramFailure || ranks[0].draws || one.draws) return std::nullopt;
  if (b.samples.empty() || !have_its_samples(ranks, one, step)) return std::nullopt;
  const ProgramCause cause = factor_cause(ranks, one, step, i, *factor);
  if (cause == ProgramCause::none || may_divide_by_hand(a, cause)) return std::nullopt;
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.cause = cause;
  found.step = static_cast<int64_t>(step + 1);
  found.line = a.line;
  found.entry = "gradient of " + a.names[i];
  found.words = fmt::format(
      "before clip_grad_norm_() the norm is {:.6g} times that of one device; clipping leaves a "
      "distance of {:.2g}",
      *factor, off);
  return found;
}

}  // namespace lockstep
