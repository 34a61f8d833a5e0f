#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/drill_recording.h"

namespace lockstep {

struct DrillPlace {
  std::string function, module, kind, line;  // as in DrillCall
};
DrillPlace place_of(const DrillCall& call);

// Ranks call one thing where one device calls another; no function: nothing.
struct DrillParting {
  DrillPlace ranks, one;
  size_t before = 0;  // the call of one device
};

// A call of one device, and the one of each rank that is the same.
struct AlignedCall {
  size_t one = 0;
  std::vector<size_t> ranks;
};

struct DrillAlignment {
  std::vector<AlignedCall> calls;             // that all have, in their order
  std::vector<std::optional<size_t>> of_one;  // by call of one device: its place in `calls`
  std::vector<std::vector<std::optional<size_t>>> of;  // the same, by rank
  std::optional<DrillParting> parting;                 // the first
};

// By name and module. What some have alone, as a collective that one device leaves out, is passed
// over where a few calls agree again soon after it.
DrillAlignment align(const std::vector<DrillRank>& ranks, const DrillRank& one);

}  // namespace lockstep
