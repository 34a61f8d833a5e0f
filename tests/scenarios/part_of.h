#pragma once

#include <utility>
#include <vector>

#include "scenarios/base/part.h"

namespace lockstep {

using PartValues = std::vector<std::pair<const char*, OptionValue>>;

// A part of a scenario as the parser would make it.
inline Part part_of(const char* kind, const PartValues& values) {
  Part part{kind, {}};
  for (const auto& [key, value] : values) part.options.set(key, value);
  return part;
}

}  // namespace lockstep
