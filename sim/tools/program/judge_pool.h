#pragma once

#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// Ranks whose samples were handed to one device say nothing by their gradients of how samples are
// dealt. What one device trains on by itself does: in an epoch of its own it has each sample once,
// and so should the ranks together. Where they have some of these several times and others never,
// it is told; nobody is accused, for a program may mean to draw so.
ProgramFinding judge_pool(const std::vector<ProgramRank>& ranks, const ProgramRank& alone);

// A data set that a DistributedSampler deals to all ranks is the same on all of them, and on one
// device, at each index: what was drawn when it was fetched is not among ProgramRank::items. Ranks
// that make it each of what they have train on another one, and nobody else would see it.
ProgramFinding judge_items(const std::vector<ProgramRank>& ranks, const ProgramRank& alone);
// The same of a failure that nothing else explains, as where targets differ.
void take_cause_of_items(const std::vector<ProgramRank>& ranks, const ProgramRank& alone,
                         ProgramFinding* found);

// Nor do ranks whose first weights were handed on say where they come from. If some are those of
// one device, and all others are its own times a number, the same ones were drawn.
ProgramFinding judge_first_weights(const std::vector<ProgramRank>& ranks, const ProgramRank& alone);

}  // namespace lockstep
