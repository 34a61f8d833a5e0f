#pragma once

#include <cstdint>
#include <string>

#include "sim/calibrate/fit.h"

namespace lockstep {

// The machine, and what it was fitted to.
std::string text_of_fit(const Fit& fit);
// In a line: of how many "run"s or "trace"s, and how far from them.
std::string answer_of_fit(const Fit& fit, int64_t count, const char* what);

}  // namespace lockstep
