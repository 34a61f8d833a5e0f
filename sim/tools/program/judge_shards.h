#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/causes.h"
#include "sim/tools/program/recording.h"

namespace lockstep {

// What shards of gradients say of a step (from 0) in which the whole of them is not that of one
// device: each rank's are multiples of what is due, and by which factors. Nothing where they say
// anything else.
struct ShardFinding {
  ProgramCause cause = ProgramCause::unknown;
  std::string words;
};
// Some ranks have none of theirs, and others have: whatever the whole of them says.
std::optional<ShardFinding> shards_without_gradients(const std::vector<ProgramRank>& ranks,
                                                     size_t step);
std::optional<ShardFinding> judge_shards(const std::vector<ProgramRank>& ranks,
                                         const ProgramRank& one, size_t step);

// Where ranks hold gradients whole: those of one device, times another number for each owner's
// part, which several of them have cut to one norm.
std::optional<ShardFinding> judge_owned_parts(const std::vector<ProgramRank>& ranks,
                                              const ProgramRank& one, size_t step);

}  // namespace lockstep
