#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Numbers as a reader wants them, in texts and charts.

// 1004311 -> "1,004,311"
std::string grouped(int64_t number);
// "3.1e-16", "0" for exactly zero, "NaN", "Infinity"
std::string scientific(double value);
// Nine significant digits: enough to tell two floats apart. "NaN", "Infinity".
std::string digits_of(double value);
// "run", "runs"
std::string plural(int64_t count, const std::string& one, const std::string& many = "");

}  // namespace lockstep
