#pragma once

#include <string>
#include <vector>

#include "sim/tools/program/recording.h"

namespace lockstep {

// Nothing makes of the ranks' gradients one: no DistributedDataParallel holds a parameter, no sum
// is given one of them, and no two ranks have the same ones although they start apart.
bool never_reduces(const std::vector<ProgramRank>& ranks);

// Ranks that nobody deals a common data set to, and that share no gradient, may train models of
// their own: an ensemble, folds of a cross-validation, a search for options. In words; empty:
// nothing tells of it.
std::string trainings_of_their_own(const std::vector<ProgramRank>& ranks);

}  // namespace lockstep
