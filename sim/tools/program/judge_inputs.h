#pragma once

#include <optional>
#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// What the loaders gave in a step (from 0), beside what forwards were given.

// By what the norms that clip_grad_norm_() found on ranks are those of one device: nothing where
// they tell of none, or of several.
std::optional<double> factor_of_norms(const ProgramStep& a, const ProgramStep& b);
// A number that a script divides by on one device as well is not seen behind a clipping.
bool may_divide_by_hand(const ProgramStep& a, ProgramCause cause);

// Did loaders draw random numbers for what they gave, and give ranks others than one device,
// although it may be of the same samples (negatives, noise on targets)? Not of one that was handed
// it.
bool have_others_drawn(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step);
// Do forwards of all ranks have the samples of one device, and nothing else that is drawn for them?
bool have_its_samples(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step);
// Were random numbers drawn for the loss of a step, and not the same by several ranks as by one
// device? Those of forwards are no part of it.
bool draw_apart_for_loss(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                         size_t step);
// In every step: they split no batch. Of one rank alone that says nothing: false.
bool have_the_same_samples(const std::vector<ProgramRank>& ranks);
// Were ranks dealt what one device was, all of it given to forwards, and nothing drawn in between?
// Then other inputs are computed of the batch: by its mean, or by draws that were not seen.
bool dealt_alike(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step);
// Of one device that was handed the ranks' inputs: was it dealt what they were in any step, and
// computed others of that?
bool computed_others(const std::vector<ProgramRank>& ranks, const ProgramRank& one);
// The first step in which all ranks' inputs have mean 0 and deviation 1 over each rank's batch,
// which no loader gave them so: a failure, whatever one device was given.
std::optional<ProgramFinding> judge_statistics(const std::vector<ProgramRank>& ranks);

// Do ranks' losses have other scales (GradScaler)? Then each divides the average by one of its own:
// a failure, though scaling is off where gradients are compared.
std::optional<ProgramFinding> judge_loss_scales(const std::vector<ProgramRank>& ranks);

// A step that `before` could not compare, since samples had other padding, and that is as on one
// device where ranks pad as it does.
ProgramFinding padding_failure(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                               const ProgramFinding& before);

// The first step in which one device puts gradients back to other parameters than they came from.
std::optional<ProgramFinding> judge_misplaced(const ProgramRank& one);

// Where gradients agree but for what clipping by a norm leaves of it: the factor between them
// before, if it has a cause. `i`: of a gradient whose distance is `off`.
std::optional<ProgramFinding> judge_clipped(const std::vector<ProgramRank>& ranks,
                                            const ProgramRank& one, size_t step, size_t i,
                                            double off);

}  // namespace lockstep
