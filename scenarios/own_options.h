#pragma once

#include <string>

#include "scenarios/base/options.h"

namespace lockstep {

// Parts of kind "registered" are given what stands under "options" in the scenario. Between parser
// and factory those keys carry this prefix, so that none of them is taken for one of ours.
inline constexpr const char* kOwnOptionPrefix = "options.";

// Those keys alone, by the names that the scenario gave them; all others; and the way back.
Options own_options(const Options& options);
Options without_own_options(const Options& options);
void set_own_options(const Options& own, Options* options);

}  // namespace lockstep
