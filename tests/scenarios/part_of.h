#pragma once

#include <utility>
#include <vector>

#include "scenarios/base/part.h"

namespace lockstep {

using Values = std::vector<std::pair<const char*, OptionValue>>;

// A part of a scenario as the parser would make it.
inline Part part_of(const char* kind, const Values& values) {
  Part part{kind, {}};
  for (const auto& [key, value] : values) part.options.set(key, value);
  return part;
}

}  // namespace lockstep
