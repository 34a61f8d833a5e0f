#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/drill_recording.h"

namespace lockstep {

// A parameter that some ranks compute with in a step and others do not, or no rank and one device.
struct DrillBranch {
  std::string parameter;
  std::vector<int64_t> ranks;  // that use it
  bool one = false;            // so does one device
  // One device uses what the ranks use together: so it is, too, where each sample decides for
  // itself.
  bool together = false;
};

std::optional<DrillBranch> other_branch(const std::vector<DrillRank>& ranks, const DrillRank& one);

}  // namespace lockstep
