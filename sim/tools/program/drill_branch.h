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

// A parameter that was written to within the step before this call of one device, or none, and that
// operators since then find with other values on other ranks. Empty: there is none.
std::string changed_apart(const std::vector<DrillRank>& ranks, const DrillRank& one, size_t call);

}  // namespace lockstep
