#pragma once

#include <string>
#include <vector>

#include "sim/tools/program/recording.h"

namespace lockstep {

// Ranks that update by gradients of their own and average their parameters from time to time (local
// SGD) are no copies of one device, and mean to be none. Before which steps that was: what each
// rank then has is the mean of what all had, in every parameter; or a mixture of its own and that
// of others (gossip), in some of them (heads of their own); or the same on all ranks, and as none
// left it, as an outer optimizer makes it (DiLoCo). Empty: nowhere.
std::string averaged_parameters(const std::vector<ProgramRank>& ranks);

}  // namespace lockstep
