#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// Lane hook: a communication hook that loses a part of the gradients on purpose (PowerSGD,
// top-k, quantization) stays within what its user says that it may lose. What the hook leaves of a
// bucket is compared with the mean of what the ranks gave it; the agent hands that mean on, so that
// the other lanes judge everything but the hook.

// Of a bucket, each relative to the norm of a mean. At least one is there.
struct HookBound {
  std::optional<double> error;  // |result - mean| / |mean|, in every step
  // |sum over the steps so far of (result - mean)| / the largest |mean| so far: with error feedback
  // it stays bounded, without it grows.
  std::optional<double> owed;
};

ProgramFinding judge_comm_hook(const std::vector<ProgramRank>& ranks, const HookBound& bound);

// The control: with the last rank's gradients taken out of each result, the lane must fail. A bound
// within which a rank may be missing shows nothing.
bool comm_hook_control_fails(std::vector<ProgramRank> ranks, const HookBound& bound);
// Where it does not: below which bounds it would.
std::string without_last_rank(const ProgramRank& rank);

}  // namespace lockstep
