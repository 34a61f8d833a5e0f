#pragma once

#include <vector>

#include "sim/tools/program/recording.h"

namespace lockstep {

// Ranks record what they hold, so that no collective of the agent stands between those of the
// program. Sketches of shards add up to that of the whole: of each step that all ranks made, every
// rank gets the sums, and as a hash all of theirs.
void join_shards(std::vector<ProgramRank>* ranks);

}  // namespace lockstep
